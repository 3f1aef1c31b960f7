"""How systemd sees the units is told unit by unit, with the class of what went wrong."""

import json
import pathlib
from collections.abc import Mapping

import pytest

from installer import layout as layout_kit
from installer.checkup import joining, root_socket
from installer.checkup import seen as seen_kit
from tests.support import installed_tree
from wire_protocol import findings
from wire_protocol import helper_protocol as helper

Tree = installed_tree.Tree
NEEDS = "failed needs-operator"
WARNS = "warning needs-operator"
AGENT = "enlist-agent.service"


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    made = installed_tree.install(tmp_path / "m")
    made.join()
    made.run_systemd()
    made.listen_as_root_helper()
    return made


def failed(code: int, **more: str) -> dict[str, str]:
    return {
        "ActiveState": "failed",
        "SubState": "failed",
        "Result": "exit-code",
        "ExecMainStatus": str(code),
        **more,
    }


STATES: dict[str, tuple[Mapping[str, str], str, str, str]] = {
    "unknown to systemd": (
        {"LoadState": "not-found", "ActiveState": "inactive"},
        NEEDS,
        "does not know it",
        "sudo systemctl daemon-reload",
    ),
    "masked": (
        {"LoadState": "masked", "ActiveState": "inactive"},
        NEEDS,
        "masked",
        f"sudo systemctl unmask {AGENT}",
    ),
    "in a file that systemd cannot read": (
        {"LoadState": "bad-setting"},
        NEEDS,
        "bad-setting",
        f"systemd-analyze verify {AGENT}",
    ),
    "not enabled": (
        {"UnitFileState": "disabled"},
        NEEDS,
        "does not come back after a reboot",
        f"sudo systemctl enable --now {AGENT}",
    ),
    "stopped by somebody": (
        {"ActiveState": "inactive", "SubState": "dead"},
        NEEDS,
        "somebody stopped it",
        f"sudo systemctl start {AGENT}",
    ),
    "changed since systemd read it": (
        {"NeedDaemonReload": "yes"},
        WARNS,
        "has changed since",
        "sudo systemctl daemon-reload",
    ),
    "ended by what a person must settle": (
        failed(6),
        NEEDS,
        "waits for you",
        f"sudo systemctl start {AGENT}",
    ),
    "ended by what may pass": (
        failed(75),
        "failed transient",
        "is started again",
        f"journalctl -u {AGENT}",
    ),
    "refused for good": (
        failed(3),
        "failed permanent",
        "not started again",
        f"journalctl -u {AGENT}",
    ),
    "without its interpreter": (failed(203), NEEDS, "203/EXEC", "enlist doctor"),
    "started again and again": (
        {
            "ActiveState": "activating",
            "SubState": "auto-restart",
            "Result": "exit-code",
            "ExecMainStatus": "1",
            "NRestarts": "7",
        },
        "failed transient",
        "restart 7",
        f"journalctl -u {AGENT}",
    ),
    "killed": (
        {"ActiveState": "failed", "Result": "oom-kill", "ExecMainStatus": "9"},
        "failed permanent",
        "oom-kill",
        f"journalctl -u {AGENT}",
    ),
}


@pytest.mark.parametrize("case", STATES)
def test_a_unit_is_judged_by_what_systemd_says(tree: Tree, case: str) -> None:
    state, status, says, command = STATES[case]
    tree.run_systemd(states={AGENT: state})
    assert {name: how for name, how in tree.wrong().items() if "trust" not in name} == {
        f"unit.{AGENT}": status,
        "root-helper": NEEDS,
    }
    found = tree.look()[f"unit.{AGENT}"]
    assert says in found.detail
    assert command in (found.command or "")


def test_units_that_wait_for_something_may_be_inactive(tree: Tree) -> None:
    off = {"ActiveState": "inactive", "SubState": "dead"}
    tree.run_systemd(states={"enlist-join.service": off, "enlist-helper.service": off})
    found = tree.look()
    assert "waits for /var/lib/enlist/worker/pending-join.json" in (
        found["unit.enlist-join.service"].detail
    )
    assert "its socket starts it" in found["unit.enlist-helper.service"].detail


def test_before_the_join_the_agent_waits_for_it(tree: Tree) -> None:
    (tree.here.data_dir / "agent.json").unlink()
    tree.run_systemd(states={AGENT: {"ActiveState": "inactive", "SubState": "dead"}})
    assert tree.look()[f"unit.{AGENT}"].status is findings.Status.OK


def test_all_units_are_asked_for_at_once(tree: Tree) -> None:
    tree.look()
    (asked,) = tree.asked
    assert asked.startswith("show --property=Id,")
    assert asked.endswith("enlist-join.service")


def test_a_systemd_that_does_not_answer_is_told_in_time(tree: Tree) -> None:
    tree.program("systemctl", "#!/bin/sh\nexec sleep 600\n")
    found = tree.look(seconds=0.2)
    assert "gave no answer within 0.2 s" in found["unit"].detail
    assert found["unit"].kind is not None
    assert found["unit"].kind.value == "transient"


def test_a_systemd_that_answers_with_an_error_is_told(tree: Tree) -> None:
    tree.program("systemctl", "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    assert "Failed to connect to bus" in tree.look()["unit"].detail


def test_what_a_service_says_of_itself_cannot_command_a_terminal(tree: Tree) -> None:
    tree.run_systemd(states={AGENT: {"StatusText": "well\x1b]0;owned\x07"}})
    found = tree.look()[f"unit.{AGENT}"]
    assert "\x1b" not in found.detail + str(found.facts)
    parts = dict(tree.checkup().parts())
    assert b"\x1b" not in parts["units.txt"]


def test_drop_ins_are_named(tree: Tree) -> None:
    path = f"/etc/systemd/system/{AGENT}.d/override.conf"
    tree.run_systemd(states={AGENT: {"DropInPaths": path}})
    assert path in tree.look()[f"unit.{AGENT}"].detail


def test_the_units_of_a_platform_are_judged_alike(tmp_path: pathlib.Path) -> None:
    made = installed_tree.install(tmp_path / "m", layout_kit.Role.PLATFORM)
    made.run_systemd()
    assert {name for name in made.wrong() if name.startswith("unit")} == set()


class TestRootHelper:
    """Its socket, and that it can judge an order."""

    def test_without_a_socket_no_update_comes_from_the_platform(self, tree: Tree) -> None:
        (tree.root / "run/enlist-helper.sock").unlink()
        found = tree.look()["root-helper"]
        assert "cannot be updated from the Platform" in found.detail
        assert found.command == "sudo systemctl enable --now enlist-helper.socket"

    def test_a_socket_that_everybody_may_use_is_told(self, tree: Tree) -> None:
        (tree.root / "run/enlist-helper.sock").chmod(0o666)
        found = tree.look()["root-helper"]
        assert "mode 0666" in found.detail
        assert found.command == "sudo systemctl restart enlist-helper.socket"

    def test_without_a_trust_set_it_believes_nobody(self, tree: Tree) -> None:
        found = tree.look()["root-helper"]
        assert found.kind is not None
        assert "believes no order" in found.detail
        assert (found.command or "").startswith("sudo enlist worker join -")
        assert "enroll-token web-1 --replace" in (found.command or "")

    def test_with_both_it_is_well(self, tree: Tree) -> None:
        state = tree.root / "var/lib/enlist/helper"
        state.mkdir(mode=0o700)
        (state / "trust.json").write_text("{}")
        (state / "trust.json").chmod(0o600)
        assert tree.look()["root-helper"].status is findings.Status.OK
        assert tree.wrong() == {}

    def test_its_place_is_the_one_of_the_protocol(self) -> None:
        assert root_socket.SOCKET == helper.SOCKET


class TestLastUpdate:
    """What became of the last change of release, as the root helper wrote it down."""

    def write(self, tree: Tree, **fields: str) -> None:
        folder = tree.root / "var/lib/enlist/helper"
        folder.mkdir(mode=0o700)
        content = {"end": "changed", "release": "1.2.3-a", "at": "2026-01-31T12:00:00Z", **fields}
        (folder / "last.json").write_text(json.dumps(content))

    def test_one_that_went_well_is_told(self, tree: Tree) -> None:
        self.write(tree)
        assert "came into use" in tree.look()["last-update"].detail

    def test_one_that_was_taken_back_is_a_warning_with_its_reason(self, tree: Tree) -> None:
        self.write(tree, end="went-back", reason="It died at once")
        found = tree.look()["last-update"]
        assert found.status is findings.Status.WARNING
        assert "It died at once" in found.detail
        assert "journalctl -u enlist-helper.service" in (found.command or "")


class TestPlatform:
    """Its services and the ports that others must reach."""

    @pytest.fixture
    def tree(self, tmp_path: pathlib.Path) -> Tree:
        made = installed_tree.install(tmp_path / "m", layout_kit.Role.PLATFORM)
        made.run_systemd()
        return made

    def ports(self, tree: Tree) -> list[int]:
        (seen,) = seen_kit.find(tree.around(), prefixes=[layout_kit.DEFAULT_PREFIX], environment={})
        return [port for port, _ in joining.ports(seen)]

    def test_one_that_was_stopped_is_told_though_a_socket_would_start_it(self, tree: Tree) -> None:
        off = {"ActiveState": "inactive", "SubState": "dead"}
        services = ("enlist-platform.service", "enlist-listener.service")
        tree.run_systemd(states=dict.fromkeys(services, off))
        found = tree.look()
        assert found["unit.enlist-platform.service"].status is findings.Status.FAILED
        assert "its socket starts it" in found["unit.enlist-listener.service"].detail

    def test_the_ports_are_those_of_its_sockets_beyond_this_machine(self, tree: Tree) -> None:
        assert self.ports(tree) == [8444, 8445, 8446]

    def test_a_drop_in_moves_a_port(self, tree: Tree) -> None:
        folder = tree.root / "etc/systemd/system/enlist-listener.socket.d"
        folder.mkdir()
        (folder / "port.conf").write_text("[Socket]\nListenStream=\nListenStream=[::]:9444\n")
        assert self.ports(tree) == [9444, 8445, 8446]

    def test_a_port_that_only_the_unit_changed_is_told_with_both(self, tree: Tree) -> None:
        folder = tree.root / "etc/systemd/system/enlist-bundles.socket.d"
        folder.mkdir()
        (folder / "port.conf").write_text("[Socket]\nListenStream=\nListenStream=9446\n")
        found = tree.look()["ports"]
        assert "bundles.port is 8446, and enlist-bundles.socket has 9446" in found.detail
        assert "sudo systemctl edit enlist-bundles.socket" in (found.command or "")
        (tree.here.data_dir / "config.toml").write_text("[bundles]\nport = 9446\n")
        assert tree.look()["ports"].status is findings.Status.OK

    def test_a_gateway_that_is_off_needs_no_socket(self, tree: Tree) -> None:
        (tree.here.data_dir / "config.toml").write_text('[gateway]\nport = "off"\n')
        assert tree.look()["ports"].status is findings.Status.OK

    def test_settings_that_are_a_link_are_not_followed_by_root(self, tree: Tree) -> None:
        (tree.root / "elsewhere.toml").write_text("[bundles]\nport = 1\n")
        (tree.here.data_dir / "config.toml").symlink_to(tree.root / "elsewhere.toml")
        assert tree.look()["ports"].status is findings.Status.SKIPPED

    def test_settings_that_cannot_be_read_are_told(self, tree: Tree) -> None:
        (tree.here.data_dir / "config.toml").write_text("[gateway\n")
        found = tree.look()["ports"]
        assert (found.status, found.command) == (
            findings.Status.FAILED,
            "sudoedit /var/lib/enlist/platform/config.toml",
        )
