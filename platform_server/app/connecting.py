"""Builds the parts through which nodes stay connected: the gateway, and what stands on it.

The gateway lives in the engine's process, since every question on a session needs the node's row
and a trust key (docs/adr). Not for: the port's key and certificate (certificates), taking machines
in (enrolling).
"""

import dataclasses
import socket
from collections.abc import Mapping
from typing import Protocol

from platform_server.app import certificates, orders
from platform_server.settings import groups
from platform_server.trust import port_certificate
from runtime_kit import supervise


class Gateway(Protocol):
    """What the engine's life asks of the gateway."""

    def start(self, sock: socket.socket) -> None:
        """Begins to accept from a bound, listening socket, which stays the caller's."""

    async def drain(self, *, seconds: float) -> None:
        """Accepts no more, sends every session away with a hint when to come back; bounded."""

    def serve_with(self, identity: port_certificate.PortIdentity) -> None:
        """Uses this key and certificate from the next handshake on; sessions are kept."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """What the engine serves and runs for nodes that are connected."""

    gateway: Gateway | None
    tasks: Mapping[str, supervise.Work]


async def build(
    given: orders.Orders, *, settings: groups.Settings, kept: certificates.Certificates
) -> Connecting:
    """Builds them; without a gateway port there is nothing to build."""
    if not given.gateway_fds or not settings.dispatch_enabled:
        return Connecting(gateway=None, tasks={})
    gateway = _Unanswered()
    kept.serve_gateway_with(gateway.serve_with)
    return Connecting(gateway=gateway, tasks={})


class _Unanswered:
    """Until there is a gateway: what connects waits in the port's queue."""

    def start(self, sock: socket.socket) -> None:
        """Leaves the socket alone."""

    async def drain(self, *, seconds: float) -> None:
        """Has nothing to send away."""

    def serve_with(self, identity: port_certificate.PortIdentity) -> None:
        """Serves nobody."""
