"""Where the Platform's endpoint is now: its name asked anew, its addresses tried in turn.

WireGuard itself keeps the first address for ever and tries no second one, so a name that moved, or
a family that loses everything, would be silence without end.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from runtime_kit.wireguard import config
from wire_protocol import mesh

RESOLVE_SECONDS = 5.0
_MOST = 16

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class NotFound(Exception):
    """The endpoint's name has no address now; it is asked again."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, in the system's order; raises `OSError`, `TimeoutError`."""
    async with asyncio.timeout(RESOLVE_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    return [str(address[0]) for *_, address in found]


class Endpoints:
    """Gives the next address to try."""

    def __init__(self, resolver: Resolve = resolve) -> None:
        self._resolve = resolver
        self._turn = 0

    async def next(self, endpoint: mesh.Endpoint) -> config.Endpoint:
        """The next address; raises `NotFound`."""
        try:
            texts = await self._resolve(endpoint.host, endpoint.port)
        except (OSError, TimeoutError, UnicodeError):
            texts = []
        found = [one for text in texts[:_MOST] if (one := _address(text)) is not None]
        if not found:
            raise NotFound(f"The name {endpoint.host} cannot be resolved.")
        chosen = found[self._turn % len(found)]
        self._turn += 1
        return config.Endpoint(address=chosen, port=endpoint.port)


def _address(text: str) -> config.Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
