"""Binds what the Platform listens on; the host keeps these for as long as it lives.

TCP sockets have IPV6_V6ONLY set, so that `::` and `0.0.0.0` stand beside each other. The local
sockets have mode 0600 from their first moment and lie in a folder of mode 0700. A socket file
left by a Platform that was killed is replaced; the host's lock says that nobody else is using it.
"""

import contextlib
import dataclasses
import errno
import ipaddress
import os
import pathlib
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from platform_server.app import failures
from runtime_kit import small_packets
from wire_protocol import problems

BACKLOG: Final = 1024
_UNIX_PATH_BYTES: Final = 107  # sun_path less its NUL (unix(7))
_FREE_PORT_TRIES: Final = 16
_IP_FREEBIND: Final = 15  # linux/in.h


class _Taken(failures.CannotStart):
    """Another process has the port: stop it or give another by the option that is named."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A port as people know it: what it is for, and the option that chooses another."""

    what: str
    option: str


def parse_listen(text: str) -> tuple[str, int]:
    """Reads HOST:PORT, with brackets around an IPv6 address; raises `CannotStart`."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not port.isdigit() or int(port) > 65_535:
        raise failures.CannotStart(
            f"--listen {text!r} is not HOST:PORT, for example 127.0.0.1:8440 or [::1]:8440.",
            exit_code=problems.Exit.INVALID,
        )
    if int(port) != 0 and int(port) < 1024:
        raise failures.CannotStart(
            f"--listen {text!r}: ports start at 1024.", exit_code=problems.Exit.INVALID
        )
    return bare, int(port)


def resolve(host: str) -> list[str]:
    """The addresses of a host to listen on; raises `CannotStart`."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as fault:
        raise failures.CannotStart(
            f"--listen: the host {host!r} has no address here ({fault.strerror}).",
            exit_code=problems.Exit.INVALID,
        ) from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_loopback(addresses: Sequence[str]) -> bool:
    """Whether nobody outside this machine can reach any of these."""
    return all(ipaddress.ip_address(one).is_loopback for one in addresses)


def bind_tcp(
    addresses: Sequence[str],
    *,
    port: int,
    asked: Asked,
    skip_missing: bool,
    to_come: Sequence[str] = (),
) -> list[socket.socket]:
    """Binds the port on every address; with port 0 all get the same free one.

    `skip_missing` leaves out a family that this machine does not have. `to_come` are addresses that
    this machine will have later. Raises `CannotStart`.
    """
    wanted = (*addresses, *to_come)
    tries = _FREE_PORT_TRIES if port == 0 and len(wanted) > 1 else 0
    how = _How(asked=asked, skip_missing=skip_missing, to_come=frozenset(to_come))
    for _ in range(tries):
        # What is free on one address may be somebody's connection on the next: take another.
        with contextlib.suppress(_Taken):
            return _bind_all(wanted, port=port, how=how)
    return _bind_all(wanted, port=port, how=how)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    asked: Asked
    skip_missing: bool
    to_come: frozenset[str]


def _bind_all(addresses: Sequence[str], *, port: int, how: _How) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for address in addresses:
            one = _bind_one(address, port=port, how=how)
            if one is not None:
                bound.append(one)
                port = one.getsockname()[1]
    except BaseException:
        close_all(bound)
        raise
    if not bound:
        raise failures.CannotStart(
            f"{how.asked.what}: none of {', '.join(addresses)} exists on this machine.",
            exit_code=problems.Exit.INVALID,
        )
    return bound


def bind_local(path: pathlib.Path) -> socket.socket:
    """Binds a Unix socket with mode 0600; raises `CannotStart`."""
    if len(os.fsencode(path)) > _UNIX_PATH_BYTES:
        raise failures.CannotStart(
            f"The path {path} is too long for a Unix socket ({_UNIX_PATH_BYTES} bytes): choose a "
            "data directory with a shorter path.",
            exit_code=problems.Exit.INVALID,
        )
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with _umask(0o177):
            one.bind(str(path))
        one.listen(BACKLOG)
    except OSError as fault:
        one.close()
        raise failures.CannotStart(
            f"The socket {path} cannot be made: {fault.strerror}.",
            exit_code=problems.Exit.TEMPORARY
            if fault.errno in (errno.ENOSPC, errno.EDQUOT)
            else problems.Exit.INVALID,
        ) from None
    return one


def remove_local(path: pathlib.Path, *, inode: int) -> None:
    """Removes the socket file if it is still the one that was bound."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == inode:
            path.unlink()


def close_all(several: Sequence[socket.socket]) -> None:
    """Closes them."""
    for one in several:
        one.close()


def _bind_one(address: str, *, port: int, how: _How) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        one = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        if how.skip_missing:
            return None
        raise
    try:
        if address in how.to_come:
            one.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        small_packets.ensure(one)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((address, port))
        one.listen(BACKLOG)
    except OSError as fault:
        one.close()
        if how.skip_missing and fault.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise _bind_fault(fault, address=address, port=port, asked=how.asked) from None
    except BaseException:
        one.close()
        raise
    return one


def _bind_fault(fault: OSError, *, address: str, port: int, asked: Asked) -> failures.CannotStart:
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    if fault.errno == errno.EADDRINUSE:
        return _Taken(
            f"{asked.what}: another process listens on {place}. Stop it (ss -ltnp shows it) or "
            f"give another port with {asked.option}.",
            exit_code=problems.Exit.INVALID,
        )
    if fault.errno == errno.EADDRNOTAVAIL:
        return failures.CannotStart(
            f"{asked.what}: the address {address} does not exist on this machine (ip address shows "
            "those that do).",
            exit_code=problems.Exit.INVALID,
        )
    return failures.CannotStart(
        f"{asked.what}: {place} cannot be bound ({asked.option}): {fault.strerror}.",
        exit_code=problems.Exit.INVALID,
    )


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
