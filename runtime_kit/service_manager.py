"""What a service and the manager that started it tell each other, as systemd's protocols say.

For: `sd_notify` (one datagram to `$NOTIFY_SOCKET`) and socket activation (`$LISTEN_FDS`), both of a
few lines, stable since 2013 and the same in every supervisor that speaks them. Without a manager
everything here does nothing, so that a program says the same however it was started.
Known limits: a notify socket over vsock, as machine managers offer it, is not spoken to; and
`WATCHDOG=1` is not sent.
"""

import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Mapping, MutableMapping

FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
MOST_SOCKETS = 64
UNNAMED = "unknown"  # what systemd itself calls a socket without a name
_MOST_TEXT = 512
_SEND_SECONDS = 5.0  # the manager reads at once; where it does not, a service is not held up


class BadSurroundings(Exception):
    """The manager's environment variables contradict one another; start the unit anew."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """The other end of `$NOTIFY_SOCKET`. Every method raises `OSError` where it cannot be told."""

    address: str | None

    def ready(self, status: str = "") -> None:
        """The service does its work from now on; ends `Type=notify`'s start, and a reload."""
        self._tell("READY=1", *_status(status))

    def reloading(self) -> None:
        """The service takes its settings anew; `ready` ends it."""
        micros = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={micros}")

    def stopping(self, status: str = "") -> None:
        """The service ends by its own will or has begun to end."""
        self._tell("STOPPING=1", *_status(status))

    def status(self, text: str) -> None:
        """One line for people, shown by `systemctl status`."""
        self._tell(*(_status(text) or ("STATUS=",)))

    def needs_longer(self, seconds: float) -> None:
        """Asks for that much time from now on for the start, reload or stop under way."""
        self._tell(f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}")

    def _tell(self, *lines: str) -> None:
        if self.address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_SEND_SECONDS)
            sender.sendto("\n".join(lines).encode(), self.address)


def of(environment: Mapping[str, str]) -> Manager:
    """The manager of this process, or one that hears nothing; raises `BadSurroundings`.

    The variable is left where it is: a program that becomes another by `exec` hands it on.
    """
    given = environment.get("NOTIFY_SOCKET", "")
    if not given:
        return Manager(address=None)
    if given.startswith("@"):
        return Manager(address="\0" + given[1:])
    if not given.startswith("/"):
        raise BadSurroundings(f"NOTIFY_SOCKET is {given[:80]!r}; only Unix sockets are spoken to.")
    return Manager(address=given)


def take_sockets(
    environment: MutableMapping[str, str], *, pid: int | None = None, first: int = FIRST_DESCRIPTOR
) -> dict[str, tuple[socket.socket, ...]]:
    """The sockets that the manager opened for this process, by name, in the unit's order.

    Empty where there are none, or where they are another process's. May be called once: the
    variables are removed, so that no child takes the sockets for its own, and no child inherits
    them. Raises `BadSurroundings`.
    """
    taken = {
        name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    }
    if not taken["LISTEN_FDS"] or taken["LISTEN_PID"] != str(os.getpid() if pid is None else pid):
        return {}
    count = _count(taken["LISTEN_FDS"])
    names = taken["LISTEN_FDNAMES"].split(":") if taken["LISTEN_FDNAMES"] else [UNNAMED] * count
    if len(names) != count:
        raise BadSurroundings(f"LISTEN_FDNAMES has {len(names)} names for {count} sockets.")
    found: dict[str, tuple[socket.socket, ...]] = {}
    for number, name in enumerate(names, start=first):
        os.set_inheritable(number, False)  # noqa: FBT003 - the library's own signature
        found[name] = (*found.get(name, ()), _socket(number))
    return found


def close(sockets: Mapping[str, tuple[socket.socket, ...]]) -> None:
    """Closes what was taken and is not used; the manager keeps its own end open."""
    with contextlib.ExitStack() as stack:
        for several in sockets.values():
            for one in several:
                stack.callback(one.close)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= MOST_SOCKETS:
        raise BadSurroundings(f"LISTEN_FDS is {text[:20]!r}; it must be 1 to {MOST_SOCKETS}.")
    return int(text)


def _socket(number: int) -> socket.socket:
    try:
        return socket.socket(fileno=number)
    except OSError as error:
        raise BadSurroundings(f"Descriptor {number} is no socket: {error.strerror}.") from error


def _status(text: str) -> tuple[str, ...]:
    """As one line: a line end would begin another message."""
    line = " ".join(text.split())[:_MOST_TEXT]
    return (f"STATUS={line}",) if line else ()
