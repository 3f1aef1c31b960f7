"""Both roles on one machine, the worker in places of its own; a Platform updated, well and badly.

Most installations, the update and a removal are killed on their way first, and run again.

00 a Platform in the default places, a worker below another prefix with another data directory
01 the worker joins, and its Agent runs from there; the command is the Platform's
02 the Platform is updated: its node, its tokens and its key are those from before
03 a Platform that crashes at its start is gone back from within 60 s, and serves again
04 the worker goes: the Platform keeps its command, its accounts and its data
05 the Platform goes: nothing is left but the written list
"""

import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from installer import changeover, install, switch, uninstall
from tests.support import bundles
from tests.support.machines import installing, machine, tree

NODE = "both-1"
NEXT, BROKEN = "0.1.8", "0.1.9"
CRASHING = {"platform_server/app/__init__.py": b'"""Broken on purpose."""\n\nraise SystemExit(9)\n'}
PREFIX, DATA = "/usr/local/enlist", "/mnt/data/worker"
PLACES = ("--prefix", PREFIX, "--data-dir", DATA)
ROLL_BACK_SECONDS = 60.0
KILLED = 137


@pytest.fixture(scope="module")
def both(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine, and how it was before."""
    with new_machine("roles") as booted:
        booted.boot()
        yield booted


@pytest.fixture(scope="module")
def before(both: machine.Machine) -> dict[str, tree.Entry]:
    return both.written()


def released(
    releases: installing.Releases, version: str, replaced: Mapping[str, bytes] | None = None
) -> str:
    """A released folder on the machines with a Platform of this version."""
    target = releases.folder / f"platform-{version}"
    if not target.is_dir():
        built = bundles.released(
            "platform", version=version, replaced=replaced, pythons=installing.PYTHONS[:1]
        )
        aside = releases.folder / f".platform-{version}"
        aside.mkdir()
        for file in filter(pathlib.Path.is_file, built.folder.iterdir()):
            shutil.copy(file, aside / file.name)
        aside.rename(target)
    return f"{installing.RELEASES}/{target.name}"


def killed(on: machine.Machine, *command: str, at: str) -> None:
    """Runs the installer up to a point at which it kills itself, as kill -9 does."""
    done = on.attempt(
        *command, environment={"ENLIST_CRASH_AT": at}, seconds=installing.INSTALL_SECONDS
    )
    assert done.code == KILLED, done


def nodes(on: machine.Machine) -> list[tuple[str, str]]:
    listed = on.document("enlist", "nodes", "list", "-o", "json")["nodes"]
    assert isinstance(listed, list)
    return [(one["node_id"], one["state"]) for one in listed]


def test_00_both_are_installed(
    both: machine.Machine, before: dict[str, tree.Entry], releases: installing.Releases
) -> None:
    now = releases.ensure("now")
    assert not any(path.startswith("/opt/enlist") for path in before)
    killed(both, *installing.install_command("platform", release=now), at=install.UNITS_MADE)
    installing.install(both, "platform", release=now)
    killed(both, *installing.install_command("worker", *PLACES, release=now), at=install.IN_USE)
    installing.install(both, "worker", *PLACES, release=now)
    unit = both.read("/etc/systemd/system/enlist-agent.service")
    assert f"ExecStart={PREFIX}/worker/current/bin/enlist agent --data-dir {DATA}" in unit
    assert "/opt/enlist" not in unit


def test_01_the_worker_joins_from_its_places(both: machine.Machine) -> None:
    token = both.run("enlist", "nodes", "enroll-token", NODE, "--raw")
    both.run(f"{PREFIX}/worker/current/bin/enlist", "worker", "join", "-", stdin=token)
    both.until("sh", "-c", f'enlist nodes list -o json | grep -q \'"state": *"ready"\' # {NODE}')
    assert nodes(both) == [(NODE, "ready")]
    assert both.run("find", DATA, "-not", "-user", "enlist-worker") == ""
    link = both.run("readlink", "/usr/local/bin/enlist").strip()
    assert link == "/opt/enlist/platform/current/bin/enlist"


def test_02_the_platform_is_updated(both: machine.Machine, releases: installing.Releases) -> None:
    shown = both.document("enlist", "platform", "show", "-o", "json")
    update = installing.install_command("platform", release=released(releases, NEXT))
    for point in (switch.SWITCHED, changeover.RESTARTED):
        killed(both, *update, at=point)
    both.run(*update, seconds=installing.INSTALL_SECONDS)
    assert both.run("enlist", "--version").strip() == f"enlist {NEXT}"
    after = both.document("enlist", "platform", "show", "-o", "json")
    assert [after[name] for name in ("platform_id", "pins", "gateway_pins")] == [
        shown[name] for name in ("platform_id", "pins", "gateway_pins")
    ]
    assert [node for node, _ in nodes(both)] == [NODE]


def test_03_a_platform_that_does_not_live_is_gone_back_from(
    both: machine.Machine, releases: installing.Releases
) -> None:
    broken = released(releases, BROKEN, CRASHING)
    began = time.monotonic()
    done = installing.install(both, "platform", release=broken, expect=3)
    assert time.monotonic() - began < ROLL_BACK_SECONDS
    assert "enlist-platform.service died at its start" in done.err
    assert both.run("enlist", "--version").strip() == f"enlist {NEXT}"
    both.until("sh", "-c", f'enlist nodes list -o json | grep -q \'"state": *"ready"\' # {NODE}')
    for unit in ("enlist-platform", "enlist-listener", "enlist-bundles"):
        assert both.run("systemctl", "is-active", f"{unit}.service").strip() == "active"


def test_04_the_worker_goes_and_the_platform_stays(both: machine.Machine) -> None:
    script = f"{PREFIX}/worker/current/install.sh"
    both.run("sh", script, "--role", "worker", "--prefix", PREFIX, "--uninstall", "--yes")
    assert not both.has(PREFIX)
    assert not both.has("/mnt/data")
    assert not both.has("/var/lib/enlist/helper")
    assert both.attempt("id", "enlist-worker").code != 0
    assert nodes(both) == [(NODE, "removed")]


def test_05_the_platform_goes_and_nothing_is_left(
    both: machine.Machine, before: dict[str, tree.Entry]
) -> None:
    script = "/opt/enlist/platform/current/install.sh"
    removal = ("sh", script, "--role", "platform", "--uninstall", "--yes")
    for point in (uninstall.STOPPED, uninstall.MACHINES_GONE):
        killed(both, *removal, at=point)
    both.run(*removal)
    assert tree.notable(before, both.written()) == {}
