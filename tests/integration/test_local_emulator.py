"""QEMU as the keeper starts it: what it may do on this host, and what is left when it ends.

A real QEMU with a bridge of its own and a kernel that does nothing; machines that boot are in
tests/machines/test_86.
"""

import contextlib
import dataclasses
import datetime
import os
import pathlib
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from provisioning import contract
from provisioning.local import bridge, emulation, host, images, machines, programs
from tests.support import waits

BRIDGE = "enlemu0"
NETWORK = "10.97.14.0/24"
MACHINE = machines.Machine(
    kind=machines.Kind.QEMU,
    name="demo-0123456789",
    owner=contract.Owner(installation="in-1", infra="i", operation="op", node="demo", attempt=1),
    size="small",
    image="debian-12",
    network=NETWORK,
    address="10.97.14.7",
    created_at=datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC),
)


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "taps and other accounts need root"
    missing = host.missing_programs(machines.Kind.QEMU)
    if missing:
        return f"the emulator needs {', '.join(missing)}"
    return None if pathlib.Path("/dev/net/tun").exists() else "the emulator needs /dev/net/tun"


# All are one machine's: two at once would have its one cable.
pytestmark = [
    pytest.mark.skipif(_why_not() is not None, reason=str(_why_not())),
    pytest.mark.xdist_group("local-emulator"),
]


def _idle_kernel() -> bytes:
    """The least that QEMU takes for a kernel of Linux's boot protocol 2.06; it runs zeros."""
    image = bytearray(16_384)
    image[0x1F1] = 4  # sectors of set-up code
    image[0x202:0x208] = struct.pack("<4sH", b"HdrS", 0x0206)
    image[0x22C:0x230] = struct.pack("<I", 0x37FF_FFFF)  # how far up an initial disk may lie
    return bytes(image)


@pytest.fixture
def runner(tmp_path: pathlib.Path) -> Iterator[emulation.Emulated]:
    """A machine's folder with a disk that holds nothing, and its bridge."""
    tmp_path.chmod(0o700)
    made = emulation.Emulated(tmp_path, machine=MACHINE, image=tmp_path, bridge=BRIDGE)
    made.place.mkdir()
    made.place.chmod(0o755)
    (made.place / "vmlinuz").write_bytes(_idle_kernel())
    (made.place / "initrd").write_bytes(bytes(512))
    disk = made.place / emulation.DISK
    disk.write_bytes(bytes(1_048_576))
    disk.chmod(0o600)
    os.chown(disk, emulation.account_of(MACHINE), emulation.account_of(MACHINE))
    switch = bridge.Bridge(BRIDGE)
    switch.ensure(machines.check_network(NETWORK))
    try:
        yield made
    finally:
        made.close()
        switch.remove_if_unused()


@contextlib.contextmanager
def _running(
    runner: emulation.Emulated, console: pathlib.Path
) -> "Iterator[subprocess.Popen[bytes]]":
    """As the keeper starts it, until QEMU greets at its monitor."""
    command = runner.command()
    with (
        console.open("wb") as shown,
        subprocess.Popen(
            command,
            cwd=runner.place,
            pass_fds=runner.handed,
            stdin=subprocess.DEVNULL,
            stdout=shown,
            stderr=subprocess.STDOUT,
            env=dict(programs.SURROUNDINGS),
        ) as process,
    ):
        runner.started()
        try:
            monitor = runner.monitor
            assert monitor is not None
            monitor.settimeout(60)
            assert b'"QMP"' in monitor.recv(4096), console.read_text()
            yield process
        finally:
            process.kill()


def _status(pid: int) -> dict[str, str]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def _cables() -> list[Any]:
    return [
        line for line in programs.run("ip", "-o", "link").splitlines() if f"master {BRIDGE}" in line
    ]


def test_the_emulator_has_no_root(runner: emulation.Emulated, tmp_path: pathlib.Path) -> None:
    account = str(emulation.account_of(MACHINE))
    with _running(runner, tmp_path / "console") as process:
        status = _status(process.pid)
        assert status["Name"].startswith("qemu-system"), status
        assert status["Uid"].split() == status["Gid"].split() == [account] * 4
        assert status["Groups"] == ""
        assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
        assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        threads = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
        assert {_status(int(one.name))["Seccomp"] for one in threads} == {"2"}


def test_what_the_emulator_may_write_is_its_disk_alone(runner: emulation.Emulated) -> None:
    account = emulation.account_of(MACHINE)
    place = runner.place
    as_it = ("setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", "--")
    tried = subprocess.run(
        [*as_it, "sh", "-c", "touch new; rm -f vmlinuz; true >vmlinuz; ls ..; true >>disk.img"],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert len(tried.stderr.splitlines()) == 4, tried.stderr
    assert sorted(one.name for one in place.iterdir()) == ["disk.img", "initrd", "vmlinuz"]
    assert (place / "vmlinuz").read_bytes() == _idle_kernel()


async def test_the_cable_ends_with_the_emulator(
    runner: emulation.Emulated, tmp_path: pathlib.Path
) -> None:
    with _running(runner, tmp_path / "console") as process:
        assert len(_cables()) == 1
        assert "en0123456789" in _cables()[0]
        assert runner.ask(process, again=False)
    await waits.until(lambda: _cables() == [])


def test_each_machine_of_a_network_has_an_account_of_its_own() -> None:
    network = machines.check_network("10.97.0.0/16")
    accounts = [
        emulation.account_of(dataclasses.replace(MACHINE, address=str(address)))
        for address in (network[1], network[2], network[256], network[-2])
    ]
    assert len(set(accounts)) == 4
    assert min(accounts) >= images.FIRST_UID + images.UIDS
