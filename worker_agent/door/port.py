"""The port on which the Platform reaches this machine, in listen mode.

It is bound on all addresses of both families, since the address by which the Platform dials may be
a router's and not this machine's own.
"""

import asyncio
import contextlib
import errno
import socket
import ssl

from runtime_kit import pinned_handshake, small_packets
from wire_protocol import pins

_ASK_SECONDS = 3.0  # a local TLS handshake takes milliseconds


def hold(port: int) -> list[socket.socket] | None:
    """Binds and listens on the port on every address of both families.

    None where another process has it. The sockets are the caller's to close.
    """
    held: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - the Platform's way in is not known here
            try:
                listener = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    continue
                raise
            undo.callback(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            small_packets.ensure(listener)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                listener.bind((host, port))
                listener.listen(64)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return None
                if error.errno == errno.EADDRNOTAVAIL and family == socket.AF_INET6:
                    listener.close()
                    continue  # IPv6 is compiled in and turned off
                raise
            listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
            held.append(listener)
        undo.pop_all()
    return held


async def is_own_agent(port: int, *, pin: pins.Pin) -> bool:
    """Whether the port is held by this machine's own Agent: it shows our key in its handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent; the key is compared below
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (OSError, TimeoutError):
        return False
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    try:
        return pinned_handshake.read_leaf(der or b"").pin == pin
    except ValueError:
        return False
