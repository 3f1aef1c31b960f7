"""The sockets that a service manager has opened for this Platform, by name.

They outlive the process: what connects while the Platform is started anew waits in their queues.
The units say where they listen, the settings what the Platform tells others; where the two differ,
the start is refused and both are named. Names: `api`, `gateway`, and `enroll`, the socket between
the listener's unit and the engine. Without a manager there are none.
"""

import dataclasses
import ipaddress
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final

from platform_server.app import failures
from platform_server.settings import groups
from runtime_kit import service_manager, small_packets
from wire_protocol import problems

API: Final = "api"
GATEWAY: Final = "gateway"
ENROLL: Final = "enroll"
_UNITS: Final = {
    API: "enlist-platform.socket",
    GATEWAY: "enlist-gateway.socket",
    ENROLL: "enlist-enroll.socket",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What was passed; empty where this Platform binds for itself."""

    sockets: Mapping[str, tuple[socket.socket, ...]] = dataclasses.field(default_factory=dict)

    @property
    def api(self) -> tuple[socket.socket, ...]:
        """The sockets of the API."""
        return self.sockets.get(API, ())

    @property
    def gateway(self) -> tuple[socket.socket, ...]:
        """The sockets of the gateway."""
        return self.sockets.get(GATEWAY, ())

    @property
    def enroll(self) -> socket.socket | None:
        """The socket on which the engine answers the listener."""
        return next(iter(self.sockets.get(ENROLL, ())), None)

    def require_wanted(self, settings: groups.Settings) -> None:
        """Raises `CannotStart` where the units and the settings do not fit together."""
        for name in self.sockets:
            if name not in _UNITS:
                raise _mismatch(
                    f"The service manager passes a socket named {name!r}, which is none of "
                    f"{', '.join(_UNITS)}: correct FileDescriptorName= of its unit."
                )
        if settings.enrollment.unit and self.enroll is None:
            raise _mismatch(
                "[enrollment] unit = true is for a Platform that the service manager starts, and "
                f"it passes no socket named {ENROLL}: systemctl start {_UNITS[ENROLL]}, then "
                "systemctl restart enlist-platform.service. Elsewhere leave the setting out."
            )
        if self.gateway:
            self._require_gateway(settings.gateway_port)

    def require_api_at(self, addresses: Sequence[str], *, port: int) -> None:
        """Raises `CannotStart` unless the API's sockets are where `api.listen` says."""
        found = {_place(one) for one in self.api}
        wanted = {(address, port or number) for address in addresses for _, number in found}
        if found != wanted:
            raise _mismatch(
                f"{_UNITS[API]} listens on {_texts(found)}, and api.listen says {_texts(wanted)}: "
                f"set api.listen, or change the unit (systemctl edit {_UNITS[API]}, then "
                f"systemctl restart {_UNITS[API]})."
            )

    def _require_gateway(self, port: int | None) -> None:
        if port is None:
            raise _mismatch(
                f"{_UNITS[GATEWAY]} listens, and this Platform has no gateway: systemctl disable "
                f"--now {_UNITS[GATEWAY]}, or leave gateway.port as it is."
            )
        numbers = {one.getsockname()[1] for one in self.gateway}
        if port and numbers != {port}:
            raise _mismatch(
                f"{_UNITS[GATEWAY]} listens at {', '.join(map(str, sorted(numbers)))}, and "
                f"gateway.port says {port}: set gateway.port, or change the unit (systemctl edit "
                f"{_UNITS[GATEWAY]})."
            )

    def close(self) -> None:
        """Closes this process's ends; the manager keeps its own."""
        service_manager.close(self.sockets)


def take(environment: MutableMapping[str, str]) -> Passed:
    """Takes them, once; raises `CannotStart` where the manager's words make no sense."""
    try:
        taken = service_manager.take_sockets(environment)
    except service_manager.BadSurroundings as fault:
        raise _mismatch(str(fault)) from None
    for name in (API, GATEWAY):
        for one in taken.get(name, ()):
            if one.family in (socket.AF_INET, socket.AF_INET6):
                small_packets.ensure(one)
    return Passed(sockets=taken)


def manager(environment: MutableMapping[str, str]) -> service_manager.Manager:
    """Who is told when this Platform serves; children are not to speak for it."""
    try:
        found = service_manager.of(environment)
    except service_manager.BadSurroundings as fault:
        raise _mismatch(str(fault)) from None
    environment.pop("NOTIFY_SOCKET", None)
    return found


def _place(one: socket.socket) -> tuple[str, int]:
    """Its address as `api.listen` would name it; `::` for all addresses of both families."""
    address, number = one.getsockname()[:2]
    return str(ipaddress.ip_address(address.partition("%")[0])), int(number)


def _texts(places: set[tuple[str, int]]) -> str:
    return ", ".join(
        f"[{address}]:{number}" if ":" in address else f"{address}:{number}"
        for address, number in sorted(places)
    )


def _mismatch(sentence: str) -> failures.CannotStart:
    return failures.CannotStart(sentence, exit_code=problems.Exit.INVALID)


def of_this_process() -> tuple[Passed, service_manager.Manager]:
    """Both, from this process's own environment."""
    return take(os.environ), manager(os.environ)
