"""A principal: the one on whose behalf a call is made, and what he may do.

On the local socket the kernel says who it is (SO_PEERCRED): uid 0 and the engine's own uid are
administrator, all others are refused. Over TCP an API token says it. Known limit: MFA does not
exist yet, so `mfa_verified` is always false and stands in the log as such.
"""

import dataclasses
from typing import Final

from platform_server.access import permissions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls. `name` is the actor of the action log and the owner of idempotency keys."""

    name: str
    permissions: frozenset[str]
    token_id: str | None = None
    is_local: bool = False
    mfa_verified: bool = False

    def may(self, permission: str) -> bool:
        """Whether this permission was given."""
        return permission in self.permissions

    @property
    def signed_in(self) -> bool:
        """Whether anybody vouches for the name."""
        return self is not NOBODY


NOBODY: Final = Principal(name="nobody", permissions=frozenset())


class NotAdministrator(Exception):
    """The caller on the local socket is neither root nor the Platform's account."""


def local(peer_uid: int, *, own_uid: int) -> Principal:
    """The administrator on the local socket; raises `NotAdministrator` for any other uid."""
    if peer_uid not in (0, own_uid):
        raise NotAdministrator(
            f"uid {peer_uid} is not administrator here: use root, the account of the Platform "
            f"(uid {own_uid}), or an API token."
        )
    return Principal(name=f"local:{peer_uid}", permissions=permissions.ALL, is_local=True)
