"""Runs `ip`, `wg` and `wireguard-go`: bounded in time and in what is read, and never by a shell.

Their complaints become the few faults that a caller can act on. No secret stands in an argument:
what is secret goes in on standard input. Known limit: the kinds of fault are told apart by the
words these programs print, which is why they run with the C locale.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

RUN_SECONDS: Final = 10.0
_CAP_NET_ADMIN: Final = 12  # linux/capability.h
MAX_OUTPUT: Final = 8_388_608  # 10,000 peers, each with 200 bytes, four times over
_MAX_COMPLAINT: Final = 65_536
_PLACES: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Fault(Exception):
    """The interface could not be changed or read; the message is the program's own."""


class ProgramMissing(Fault):
    """A program is not installed; the message names it and its package."""


class NotPermitted(Fault):
    """This process may not change network interfaces: it needs root or CAP_NET_ADMIN."""


class Unsupported(Fault):
    """The kernel has no WireGuard of its own."""


class NameTaken(Fault):
    """An interface of that name is there already, or its control socket is in use."""


PACKAGES: Final = {"ip": "iproute2", "wg": "wireguard-tools", "wireguard-go": "wireguard-go"}
_KINDS: Final[Sequence[tuple[str, type[Fault]]]] = (
    ("operation not permitted", NotPermitted),
    ("permission denied", NotPermitted),
    ("unknown device type", Unsupported),
    ("operation not supported", Unsupported),
    ("file exists", NameTaken),
    ("unix socket in use", NameTaken),
    ("device or resource busy", NameTaken),
)


class Runner(Protocol):
    """Runs one program and gives its output; a test scripts one."""

    async def __call__(self, *command: str, stdin: bytes = b"") -> bytes:
        """The standard output; raises `Fault` where the program ends with anything but 0."""
        ...


def find(program: str) -> str | None:
    """Where the program is, also for a user whose path leaves out what is for administrators."""
    own = os.environ.get("PATH", "").split(os.pathsep)
    places = [place for place in own if place.startswith("/")]  # never where we happen to stand
    return shutil.which(program, path=os.pathsep.join([*places, _PLACES]))


async def run(*command: str, stdin: bytes = b"") -> bytes:
    """Runs one program of the distribution's; raises `Fault` and its kinds."""
    program = find(command[0])
    if program is None:
        package = PACKAGES.get(command[0], command[0])
        raise ProgramMissing(f"{command[0]} is not installed; its package is {package}.")
    # Anonymous files and no pipes: wireguard-go goes on in the background with those it was given,
    # so that a pipe's end would never come.
    with _file(stdin) as given, _file(b"") as output, _file(b"") as errors:
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *command[1:],
                stdin=given,
                stdout=output,
                stderr=errors,
                env={"PATH": _PLACES, "LC_ALL": "C", "WG_ENDPOINT_RESOLUTION_RETRIES": "1"},
                start_new_session=True,  # a signal to our group is not for wireguard-go
            )
        except OSError as fault:
            raise Fault(f"{command[0]} cannot be started: {fault.strerror}.") from fault
        try:
            async with asyncio.timeout(RUN_SECONDS):
                code = await process.wait()
        except TimeoutError:
            raise Fault(f"{command[0]} did not end within {RUN_SECONDS:.0f} s.") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if code != 0:
            # wireguard-go complains on its standard output
            said = os.pread(output, _MAX_COMPLAINT, 0) + os.pread(errors, _MAX_COMPLAINT, 0)
            raise of_complaint(said.decode(errors="replace"), program=command[0], code=code)
        return os.pread(output, MAX_OUTPUT, 0)


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("program", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def of_complaint(text: str, *, program: str, code: int) -> Fault:
    """The fault that a program's words mean."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.isprintable() and not line.startswith(("┌", "│", "└"))]
    said = told[-1][:300] if told else f"ended with {code}"
    message = f"{program}: {said}"
    lowered = " ".join(told).lower()
    for words, kind in _KINDS:
        if words in lowered:
            return kind(message)
    return Fault(message)


def lacking(*, status: pathlib.Path) -> str | None:
    """What this process lacks for making an interface, in words; None if nothing shows.

    `status` is /proc/self/status. That the kernel has WireGuard shows only when one is made.
    """
    for program in ("ip", "wg"):
        if find(program) is None:
            return f"{program} is not installed (package {PACKAGES[program]})."
    if not may_administer_networks(status.read_text()):
        return "it has neither root's rights nor CAP_NET_ADMIN."
    return None


def may_administer_networks(status: str) -> bool:
    """Whether a process has CAP_NET_ADMIN, by its /proc status."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_NET_ADMIN & 1)
    return False
