"""An installed Platform orders a machine on its own host, by its root helper. Long.

The host is a machine itself, with systemd; what it makes are containers within it, held by units of
its own service manager. The image and the two programs that it would install are the outer host's.

00 one command makes an active node; the Platform has no root, its helper started a unit for it
01 rebooted by the Platform it is ready again, and so it is when Platform and helper were restarted
02 deleted, nothing is left of it: no unit, folder or bridge
03 with a machine there, the removal of the Platform is refused and removes nothing
04 with --remove-machines, killed on its way and repeated, nothing is left but the written list
"""

import re
from collections.abc import Callable, Iterator

import pytest

from installer import uninstall
from provisioning.local import images as base_images
from provisioning.local import machines
from tests.support.machines import installing, local, machine, tree

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
NODE, OTHER = "inner", "other"
FOLDER = "/var/lib/enlist/machines"
BRIDGE = "enlist-br0"
ORDER_SECONDS = 400.0
NEEDS_OPERATOR, KILLED = 6, 137
SCRIPT = "/opt/enlist/platform/current/install.sh"
REMOVAL = ("sh", SCRIPT, "--role", "platform", "--uninstall", "--yes")


def _options() -> list[str]:
    """What the outer host lends: image, programs, and a whole /proc and /sys to nest under."""
    image = local.ensure_image()
    place = base_images.place_of(local.IMAGE, kind=machines.Kind.NSPAWN, images=machines.IMAGES)
    assert place.name == image.name
    return [
        f"--bind-ro={image}:{place}",
        *("--bind-ro=/usr/bin/systemd-nspawn", "--bind-ro=/usr/bin/mmdebstrap"),
        *("--bind=/proc:/mnt/proc", "--bind=/sys:/mnt/sys"),
        f"--tmpfs={FOLDER}:mode=0700,size=2g",
    ]


@pytest.fixture(scope="module")
def host(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine on which machines can be made."""
    reason = local.why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        options = _options()
    except base_images.BuildFailed as failure:
        pytest.skip(f"no image can be built: {failure}")
    # One systemd in another, both with control groups: the inner one has to see its real place.
    nested = {"SYSTEMD_NSPAWN_USE_CGNS": "0"}
    with new_machine("outer", options=options, surroundings=nested) as booted:
        booted.boot()
        yield booted


@pytest.fixture(scope="module")
def before(host: machine.Machine) -> dict[str, tree.Entry]:
    """What was written on it before Enlist came."""
    return host.written()


@pytest.fixture(scope="module")
def installed(
    host: machine.Machine, before: dict[str, tree.Entry], releases: installing.Releases
) -> installing.Platform:
    """The Platform on it, as install.sh leaves it."""
    assert not any(path.startswith("/opt/enlist") for path in before)
    releases.ensure("now")
    installing.install(host, "platform")
    platform = installing.Platform(host)
    platform.configure("[gateway]\nheartbeat_seconds = 3\n")
    platform.wait_serving()
    return platform


def _order(platform: installing.Platform, node: str) -> str:
    """Orders it and waits until it is active; gives its name on the host."""
    host = platform.machine
    done = host.attempt(
        *("enlist", "cloud", "machines", "create", node, "--provider", "local", "--wait"),
        seconds=ORDER_SECONDS,
    )
    (name,) = _names(host, node) or [""]
    if done.code != 0:
        told = (
            *(done.out, done.err, host.attempt("cat", f"{FOLDER}/{name}/state.json").out),
            host.attempt("tail", "-c", "3000", f"{FOLDER}/{name}/console.log").out,
            *(host.journal(f"enlist-machine-{name}.service"), host.journal("enlist-machines")),
        )
        raise machine.CommandFailed("\n--\n".join(told))
    return name


def _names(host: machine.Machine, node: str) -> list[str]:
    found = host.attempt("ls", FOLDER).out.split()
    return [one for one in found if re.fullmatch(rf"{node}-[0-9a-f]{{10}}", one)]


def _shown(host: machine.Machine, unit: str, name: str) -> str:
    return host.run("systemctl", "show", "--property", name, "--value", unit).strip()


def test_00_one_command_makes_an_active_node_by_the_root_helper(
    installed: installing.Platform,
) -> None:
    host = installed.machine
    name = _order(installed, NODE)
    installed.wait_state(NODE, "ready")
    engine = _shown(host, "enlist-platform.service", "MainPID")
    assert host.run("stat", "-c", "%U", f"/proc/{engine}").strip() == "enlist-platform"
    unit = f"enlist-machine-{name}.service"
    assert _shown(host, unit, "ActiveState") == "active"
    assert _shown(host, unit, "Delegate") == "yes"
    assert _shown(host, unit, "MemoryMax") == str((1024 + 256) * 1024 * 1024)
    keeper = _shown(host, unit, "MainPID")
    assert "provisioning.local.keeper" in host.run("cat", f"/proc/{keeper}/cmdline")
    inside = host.run("systemctl", "show", "--property", "ControlGroup", "--value", unit).strip()
    inner = host.run(
        "sh", "-c", f"cat /sys/fs/cgroup{inside}/machine/payload/init.scope/cgroup.procs"
    ).split()
    assert host.run("stat", "-c", "%u", f"/proc/{inner[0]}").strip() == str(base_images.FIRST_UID)
    assert host.run("systemctl", "--failed", "--no-legend") == ""


def test_01_it_is_ready_again_after_each_restart(installed: installing.Platform) -> None:
    host = installed.machine
    before = installed.node(NODE)["generation"]
    installed.enlist("cloud", "machines", "reboot", NODE, "--wait", seconds=ORDER_SECONDS)
    before = installed.wait_newer_session(NODE, than=before, seconds=120)["generation"]
    (name,) = _names(host, NODE)
    keeper = _shown(host, f"enlist-machine-{name}.service", "MainPID")
    host.run("systemctl", "restart", "enlist-platform.service", seconds=90)
    host.run("systemctl", "stop", "enlist-machines.service")
    installed.wait_newer_session(NODE, than=before, seconds=120)
    assert _shown(host, f"enlist-machine-{name}.service", "MainPID") == keeper


def test_02_deleted_nothing_is_left(installed: installing.Platform) -> None:
    host = installed.machine
    (name,) = _names(host, NODE)
    installed.enlist("cloud", "machines", "delete", NODE, "--wait", seconds=ORDER_SECONDS)
    assert _names(host, NODE) == []
    units = host.run("systemctl", "list-units", "--all", "--no-legend", "enlist-machine-*")
    assert units == ""
    assert BRIDGE not in host.run("ip", "-o", "link")
    assert name not in host.run("cat", "/proc/self/mounts")
    installed.wait_gone(NODE)


def test_03_with_a_machine_there_the_removal_is_refused(
    installed: installing.Platform, before: dict[str, tree.Entry]
) -> None:
    host = installed.machine
    del before
    name = _order(installed, OTHER)
    refused = host.attempt(*REMOVAL, seconds=installing.INSTALL_SECONDS)
    assert refused.code == NEEDS_OPERATOR, refused
    assert name in refused.err
    assert "--remove-machines" in refused.err
    assert _shown(host, f"enlist-machine-{name}.service", "ActiveState") == "active"
    installed.wait_state(OTHER, "ready")


def test_04_with_its_machines_removed_nothing_is_left(
    installed: installing.Platform, before: dict[str, tree.Entry]
) -> None:
    host = installed.machine
    (name,) = _names(host, OTHER)
    place = base_images.place_of(local.IMAGE, kind=machines.Kind.NSPAWN, images=machines.IMAGES)
    host.run("umount", str(place))  # the outer host's own: lent, and not to be removed
    command = (*REMOVAL, "--remove-machines")
    for point in (uninstall.STOPPED, uninstall.MACHINES_GONE):
        done = host.attempt(
            *command,
            environment={"ENLIST_CRASH_AT": point},
            seconds=installing.INSTALL_SECONDS,
        )
        assert done.code == KILLED, done
    removed = host.attempt(*command, seconds=installing.INSTALL_SECONDS)
    assert removed.code == 0, removed
    assert host.run("ls", "-A", FOLDER) == ""  # a mount point here, so it stays
    assert BRIDGE not in host.run("ip", "-o", "link")
    units = host.run("systemctl", "list-units", "--all", "--no-legend", "enlist-*")
    assert units == ""
    running = host.run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert f"{FOLDER}/{name}" not in running
    assert tree.notable(before, host.written()) == {}
