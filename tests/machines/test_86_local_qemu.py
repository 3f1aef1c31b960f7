"""`enlist cloud machines create demo --provider local-qemu`: a kernel of its own. Long.

00 one command orders a machine, whose kernel boots, which installs, joins and is active
01 its QEMU has no root, no right to gain any, and is held by seccomp
02 rebooted, it is ready again
03 deleted, nothing is left of it: no folder, process, mount, cable or bridge
"""

import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from provisioning.local import emulation, host, images, machines
from tests.support.machines import local

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
NODE = "own-kernel"
BOOT_SECONDS = 1500.0


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local.Laptop]:
    """A Platform in a folder of its own."""
    reason = local.why_not()
    missing = host.missing_programs(machines.Kind.QEMU)
    if reason is None and missing:
        reason = f"emulated machines need {', '.join(missing)}"
    if reason is None and not pathlib.Path("/dev/net/tun").exists():
        reason = "emulated machines need /dev/net/tun"
    if reason is not None:
        pytest.skip(reason)
    try:
        local.ensure_image(machines.Kind.QEMU)
    except images.BuildFailed as failure:
        pytest.skip(f"no image can be built: {failure}")
    with local.alone(), local.opened(tmp_path_factory.mktemp("qemu")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(laptop: local.Laptop) -> dict[str, str]:
    """What is remembered from one step to the next."""
    return {"folder": str(laptop.places.folder)}


def test_00_one_command_makes_an_active_machine(
    laptop: local.Laptop, shown: dict[str, str]
) -> None:
    laptop.run("cloud", "connections", "save", "emulated", "--provider", "local-qemu")
    try:
        laptop.attempt(
            *("cloud", "machines", "create", NODE, "--provider", "local-qemu", "--wait"),
            expect=0,
            seconds=BOOT_SECONDS,
        )
    except AssertionError as error:
        for folder in laptop.places.folder.glob(f"{NODE}-*"):
            error.add_note(local.Guest(folder).console())
        raise
    machine = laptop.document("cloud", "machines", "show", NODE)
    assert machine["state"] == "active"
    assert [one["phase"] for one in machine["phases"]] == [
        *("fetching", "installing", "joining", "starting")
    ]
    shown["ref"] = machine["provider_ref"]
    assert "Debian GNU/Linux 12" in laptop.guest(shown["ref"]).console()


def test_01_the_emulator_has_no_root(laptop: local.Laptop, shown: dict[str, str]) -> None:
    (pid,) = _emulators(shown["ref"])
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    status = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    machine = machines.read(laptop.places.folder / shown["ref"])
    assert machine is not None
    account = str(emulation.account_of(machine))
    assert status["Uid"] == status["Gid"] == [account] * 4
    assert status["CapPrm"] == status["CapEff"] == ["0000000000000000"]
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])


def test_02_rebooted_it_is_ready_again(laptop: local.Laptop, shown: dict[str, str]) -> None:
    (before,) = _emulators(shown["ref"])
    generation = laptop.node(NODE)["generation"]
    laptop.attempt(*("cloud", "machines", "reboot", NODE, "--wait"), expect=0, seconds=BOOT_SECONDS)
    local.wait(
        lambda: laptop.node(NODE),
        until=lambda node: node["state"] == "ready" and node["generation"] > generation,
        what="the node has a newer session",
        seconds=BOOT_SECONDS,
    )
    assert _emulators(shown["ref"]) != [before]


def test_03_deleted_nothing_is_left_of_it(laptop: local.Laptop, shown: dict[str, str]) -> None:
    laptop.run("cloud", "machines", "delete", NODE, "--wait")
    assert local.traces(laptop.places, shown["ref"]) == []
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert local.BRIDGE not in links
    assert f"en{shown['ref'][-10:]}" not in links


def _emulators(ref: str) -> list[int]:
    """The processes of QEMU that hold this machine."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].startswith(b"qemu-system-") and ref.encode() in words:
            found.append(int(process.name))
    return found
