"""Which addresses there are to give out: pure, with chance as an argument.

Addresses are drawn at random, so that engines which give some out at the same moment rarely meet;
the store's unique column decides. The network's first address is the Platform's.
"""

import ipaddress
import random
from collections.abc import Collection, Iterator
from typing import Final

from wire_protocol import mesh

DRAWS: Final = 16
_UNIQUE_LOCAL: Final = 0xFD << 120  # RFC 4193: fd00::/8, 40 bits at random, a subnet, a /64
MOST_SCANNED: Final = 65_536


def new_network(chance: random.Random) -> ipaddress.IPv6Network:
    """A unique local /64 of this installation's own, unlikely to be anybody else's."""
    prefix = _UNIQUE_LOCAL | (chance.getrandbits(40) << 80)
    return ipaddress.IPv6Network((prefix, 64))


def platform_address(network: mesh.Network) -> mesh.Address:
    """The Platform's own: the first after the network's."""
    return network.network_address + 1


def draw(network: mesh.Network, *, chance: random.Random) -> Iterator[mesh.Address]:
    """A few addresses at random, none of them the Platform's, the network's or the broadcast's."""
    first, last = _bounds(network)
    for _ in range(DRAWS):
        yield network.network_address + chance.randint(first, last)


def find_free(network: mesh.Network, *, taken: Collection[str]) -> mesh.Address | None:
    """The first that is free, where drawing found none: the network is nearly full."""
    first, last = _bounds(network)
    for number in range(first, min(last, first + MOST_SCANNED) + 1):
        address = network.network_address + number
        if str(address) not in taken:
            return address
    return None


def _bounds(network: mesh.Network) -> tuple[int, int]:
    """The first and the last number behind the network's address that a node may have."""
    is_broadcast_last = network.version == 4
    return 2, network.num_addresses - (2 if is_broadcast_last else 1)
