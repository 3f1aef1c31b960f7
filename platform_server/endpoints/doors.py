"""Which door a call came through, and who it makes the caller.

- `LOCAL`: run/platform.sock; the kernel says who it is.
- `API`: the API's TCP port; an API token says who it is.

The anonymous door behind the enrollment listener, run/enroll.sock, is `enroll_server`'s.
"""

import dataclasses
import enum
import ipaddress
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.access import principals, tokens
from platform_server.endpoints import access_table, refusals
from platform_server.listener import forwarded
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit

_BEARER: Final = "bearer "
_PROXIED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")  # somebody passed this on


class Door(enum.Enum):
    """Where the call came in."""

    LOCAL = "local"
    API = "api"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What the socket and the headers say of the caller, before anything is believed."""

    door: Door
    peer_uid: int | None
    peer_address: str | None
    headers: Mapping[str, str]


class Gate:
    """Decides who calls and whether he may."""

    def __init__(
        self,
        store: contract.Store,
        *,
        clock: clock_kit.Clock,
        own_uid: int,
        trusted_proxies: Sequence[groups.Network],
    ) -> None:
        self._tokens = tokens.Tokens(store, clock=clock)
        self._own_uid = own_uid
        self._trusted_proxies = tuple(trusted_proxies)

    def address_of(self, caller: Caller) -> str | None:
        """The machine's address: the peer's, or what a trusted proxy says of it."""
        if caller.door is Door.LOCAL:
            return None
        if caller.peer_address is None:
            return None
        try:
            return forwarded.caller_of(
                caller.peer_address,
                header=caller.headers.get("forwarded"),
                proxies=self._trusted_proxies,
            )
        except forwarded.Malformed as fault:
            raise refusals.Refusal("malformed", f"{fault}.") from None

    async def principal_of(self, caller: Caller, *, rule: str) -> principals.Principal:
        """Who calls; `NOBODY` where nobody need be signed in.

        Raises `Refusal` `not-signed-in`, also for a token that is unknown, expired or revoked.
        """
        if caller.door is Door.LOCAL:
            return self._local(caller)
        if rule in (access_table.TOKEN, access_table.ANYONE):
            return principals.NOBODY
        text = caller.headers.get("authorization")
        if text is None:
            if rule == access_table.LOCAL_OR_VIEW and self._is_loopback(caller):
                return principals.NOBODY
            raise refusals.Refusal(
                "not-signed-in",
                "An API token is needed: give it as Authorization: Bearer, make one with "
                "enlist tokens create on the Platform's machine.",
            )
        if not text.lower().startswith(_BEARER):
            raise refusals.Refusal("not-signed-in", "Only Authorization: Bearer is understood.")
        try:
            return await self._tokens.authenticate(text[len(_BEARER) :].strip())
        except tokens.Unacceptable as fault:
            raise refusals.Refusal("not-signed-in", str(fault)) from None

    def require(
        self, principal: principals.Principal, *, caller: Caller, rule: str, check: bool
    ) -> None:
        """Raises `Refusal` `not-permitted` unless the rule lets this caller in."""
        if rule in (access_table.TOKEN, access_table.ANYONE):
            return
        if rule == access_table.LOCAL_OR_VIEW:
            if not principal.signed_in and self._is_loopback(caller):
                return
            rule = "nodes.view"
        if check and principal.may(access_table.VIEW_OF.get(rule, rule)):
            return
        if not principal.may(rule):
            raise refusals.Refusal("not-permitted", f"This needs the permission {rule}.")

    def _local(self, caller: Caller) -> principals.Principal:
        if caller.peer_uid is None:
            raise refusals.Refusal("not-permitted", "The kernel does not say who is calling.")
        try:
            return principals.local(caller.peer_uid, own_uid=self._own_uid)
        except principals.NotAdministrator as fault:
            raise refusals.Refusal("not-permitted", str(fault)) from None

    def _is_loopback(self, caller: Caller) -> bool:
        """Whether a program of this machine asks for itself.

        Not one that passes a request on, and not a browser that a stranger's page sent here under
        a name of the stranger's own (DNS rebinding).
        """
        if caller.peer_address is None or any(name in caller.headers for name in _PROXIED):
            return False
        if not _names_this_machine(caller.headers.get("host", "")):
            return False
        return ipaddress.ip_address(caller.peer_address).is_loopback


def _names_this_machine(host: str) -> bool:
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
