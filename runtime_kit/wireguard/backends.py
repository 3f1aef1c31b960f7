"""How an interface comes into being: the kernel's own kind, or wireguard-go's.

Both answer to the same `ip` and `wg` afterwards. The kernel's is taken where it can be;
wireguard-go, a process beside it, where the kernel has none and the program is installed. Known
limit: wireguard-go runs until its interface is deleted, as the kernel's kind does, so a program
that is killed leaves it to its next start.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from runtime_kit.wireguard import programs


class Backend(Protocol):
    """Makes an interface of one kind."""

    @property
    def name(self) -> str:
        """As people are told of it."""
        ...

    async def create(self, interface: str) -> None:
        """Makes it, down and without a key.

        Raises `Unsupported` where this machine has no such kind, `NameTaken`, `NotPermitted`.
        """
        ...


class Kernel:
    """The kernel's own WireGuard (Linux 5.6, or its module); asking for one loads the module."""

    name: Final = "kernel"

    def __init__(self, run: programs.Runner = programs.run) -> None:
        self._run = run

    async def create(self, interface: str) -> None:
        """Makes it by `ip link add`."""
        await self._run("ip", "link", "add", "dev", interface, "type", "wireguard")


class Userspace:
    """wireguard-go: a process with a TUN device and a control socket that `wg` speaks to."""

    name: Final = "wireguard-go"

    def __init__(self, run: programs.Runner = programs.run) -> None:
        self._run = run

    async def create(self, interface: str) -> None:
        """Makes it; the program goes into the background once the interface is there."""
        try:
            await self._run("wireguard-go", interface)
        except programs.ProgramMissing as fault:
            raise programs.Unsupported(str(fault)) from fault


class FirstThatWorks:
    """Tries the kinds in order; one that this machine lacks passes to the next."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self.name = "none"

    async def create(self, interface: str) -> None:
        """Makes it by the first kind there is; raises `Unsupported` where there is none."""
        reasons: list[str] = []
        for backend in self._backends:
            try:
                await backend.create(interface)
            except programs.Unsupported as fault:
                reasons.append(str(fault))
                continue
            self.name = backend.name
            return
        raise programs.Unsupported(
            "This machine has no WireGuard: use a kernel that has it, or install wireguard-go. "
            f"({' '.join(reasons)})"
        )


def of_this_machine(run: programs.Runner = programs.run) -> FirstThatWorks:
    """The kernel's, else wireguard-go's."""
    return FirstThatWorks([Kernel(run), Userspace(run)])
