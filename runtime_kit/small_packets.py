"""Keeps the packets of a TCP connection small enough for any path between two machines.

A path that carries less than Ethernet's 1500 bytes (a tunnel, a provider's overlay) is to say so
when a packet is too large; where a firewall drops that word, a connection opens and hangs at its
first full packet. A ClientHello with a key share against quantum computers is one already. So both
ends of our own legs hold their packets to what IPv6 promises everywhere (1280 bytes, RFC 8200)
from the start; that costs a fifth more packets, of which our messages have few.

For: sockets before they connect or listen; each accepted socket inherits it. One end is enough.
"""

import socket

SEGMENT_BYTES = 1220  # 1280 less 60 bytes of IPv6 and TCP headers


def ensure(sock: socket.socket) -> None:
    """Before `connect` or `listen`: neither end sends larger packets on this connection."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
