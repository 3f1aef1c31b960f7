"""The Platform's units: what they name exists in the code, and the edge has next to nothing."""

import configparser
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from platform_server.app import binding, data_dir, edges, passed
from platform_server.bundles import __main__ as bundles_main
from platform_server.edge import handover
from platform_server.listener import __main__ as listener_main
from platform_server.settings import groups
from tests.repo import project
from wire_protocol import problems

FOLDER = project.ROOT / "systemd" / "platform"
MOST_EXPOSED = 1.5
EDGE = ("enlist-listener.service", "enlist-bundles.service")
DATA = "/var/lib/enlist/platform"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed here"
)


class Unit(configparser.RawConfigParser):
    """A unit file, read: the last value of each key."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, interpolation=None, delimiters=("=",))
        self.read_string((FOLDER / name).read_text())

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@needs_systemd
@pytest.mark.parametrize(
    "name", ["enlist-platform.service", *EDGE, "enlist-edge-tls.service", "enlist-edge-key.service"]
)
def test_no_service_of_the_platform_is_exposed_by_more_than_its_limit(name: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", FOLDER / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found.group(1)) <= MOST_EXPOSED, done.stdout


@pytest.mark.parametrize(("name", "unit"), sorted(passed._UNITS.items()))
def test_each_socket_has_the_name_that_the_platform_asks_for(name: str, unit: str) -> None:
    section = Unit(unit)["Socket"]
    assert section["FileDescriptorName"] == name
    assert section.get("Service", unit.replace(".socket", ".service")) == "enlist-platform.service"


def test_the_units_listen_where_the_settings_say_by_default() -> None:
    assert Unit("enlist-platform.socket")["Socket"]["ListenStream"] == groups.ApiGroup().listen
    ports = {
        "enlist-listener.socket": groups.ENROLLMENT_PORT,
        "enlist-gateway.socket": groups.GATEWAY_PORT,
        "enlist-bundles.socket": groups.BUNDLE_PORT,
    }
    for unit, port in ports.items():
        assert Unit(unit)["Socket"]["ListenStream"] == str(port)


@pytest.mark.parametrize("name", EDGE)
def test_what_the_edge_is_started_with_is_what_it_takes(name: str) -> None:
    service = Unit(name)["Service"]
    words = shlex.split(service["ExecStart"])
    part = name.removeprefix("enlist-").removesuffix(".service")
    parser = {"listener": listener_main, "bundles": bundles_main}[part]._parser()
    own = words[words.index(f"platform_server.{part}") + 1 : -1]
    assert words[-1] == "@%d/words"
    given = parser.parse_args([*own, *edges._words_of(part, settings=groups.Settings())])
    assert given.child_of is None
    if part == "listener":
        enroll = Unit("enlist-enroll.socket")["Socket"]["ListenStream"]
        assert str(given.engine_socket) == enroll
    else:
        mounted = f"{DATA}/{data_dir.BUNDLES}:{given.folder}"
        assert service["BindReadOnlyPaths"] == mounted
        assert given.folder_of_another
    text = (FOLDER / name).read_text()
    assert set(re.findall(r"(?m)^LoadCredential=(.+)$", text)) == {
        f"tls.pem:/run/enlist-edge/{handover.KEY}",
        f"words:/run/enlist-edge/{part}{handover.SUFFIX}",
    }


@pytest.mark.parametrize("name", sorted(one.name for one in FOLDER.glob("*.service")))
def test_root_opens_nothing_by_name_in_a_folder_that_the_account_can_write(name: str) -> None:
    text = (FOLDER / name).read_text()
    opening = r"(?m)^(?:LoadCredential|EnvironmentFile|OpenFile|StandardInput|Exec\w+=[+!])\S*.*$"
    for line in re.findall(opening, text):
        assert "/var/lib/enlist" not in line
    assert "EnvironmentFile=" not in text


def test_the_key_is_copied_by_a_root_with_one_right_into_a_folder_of_its_own() -> None:
    service = Unit("enlist-edge-key.service")["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[1:4] == ["-I", "-m", "platform_server.edge.handover"]
    assert words[4:] == ["--data-dir", DATA, "--to", "/run/enlist-edge"]
    assert service["RuntimeDirectory"] == "enlist-edge"
    assert (service["RuntimeDirectoryMode"], service["RuntimeDirectoryPreserve"]) == ("0700", "yes")
    assert service["CapabilityBoundingSet"] == "CAP_DAC_READ_SEARCH"
    for name in EDGE:
        unit = Unit(name)["Unit"]
        assert "enlist-edge-key.service" in unit["Wants"].split()
        assert "enlist-edge-key.service" in unit["After"].split()


def test_whoever_writes_the_edges_files_in_a_loop_starts_it_anew_once_in_seconds() -> None:
    """And the limit of the watch, which would end it, is not reached by that."""
    commands = re.findall(r"(?m)^ExecStart=(.+)$", (FOLDER / "enlist-edge-tls.service").read_text())
    assert [one.split()[0] for one in commands] == [
        "/bin/sleep",
        "/bin/systemctl",
        "/bin/systemctl",
    ]
    path = Unit("enlist-edge-tls.path")["Path"]
    seconds = int(path["TriggerLimitIntervalSec"].removesuffix("s"))
    assert seconds / int(commands[0].split()[1]) < int(path["TriggerLimitBurst"])
    assert "enlist-edge-tls.path" in Unit("enlist-platform.service")["Unit"]["Wants"].split()


@pytest.mark.parametrize("name", EDGE)
def test_the_edge_has_no_network_no_right_and_nothing_to_write(name: str) -> None:
    service = Unit(name)["Service"]
    assert service["User"] == "enlist-edge"
    assert (service["PrivateNetwork"], service["CapabilityBoundingSet"]) == ("yes", "")
    assert service["ProtectSystem"] == "strict"
    assert "ReadWritePaths" not in service
    assert "SupplementaryGroups" not in service


def test_the_socket_between_edge_and_engine_is_the_edges_to_connect_to() -> None:
    section = Unit("enlist-enroll.socket")["Socket"]
    assert (section["SocketUser"], section["SocketGroup"], section["SocketMode"]) == (
        *("enlist-platform", "enlist-edge"),
        "0660",
    )
    assert pathlib.Path(section["ListenStream"]).name == binding.ENROLL_SOCKET


def test_a_new_certificate_or_new_words_start_the_edge_anew() -> None:
    text = (FOLDER / "enlist-edge-tls.path").read_text()
    run = f"{DATA}/{data_dir.RUN}/{edges.LISTENER}"
    watched = set(re.findall(r"(?m)^PathChanged=(.+)$", text))
    assert watched == {f"{run}/tls.pem", f"{run}/{handover.WORDS}"}
    command = Unit("enlist-edge-tls.service")["Service"]["ExecStart"]
    assert set(EDGE) <= set(command.split())
    assert "try-restart" in command, "what was stopped on purpose stays so"


def test_what_only_a_person_can_mend_is_not_tried_again() -> None:
    service = Unit("enlist-platform.service")["Service"]
    stopping = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert stopping == set(problems.Exit) - {
        *(problems.Exit.DONE, problems.Exit.OUR_FAULT, problems.Exit.TEMPORARY)
    }
    environment = service["Environment"].split()
    assert environment == ["ENLIST_ENROLLMENT__UNIT=true", "ENLIST_BUNDLES__UNIT=true"]


def test_what_was_stopped_is_not_started_by_whoever_connects_next() -> None:
    sockets = set(passed._UNITS.values())
    assert set(Unit("enlist-platform.service")["Unit"]["PropagatesStopTo"].split()) == sockets
    for unit in sockets:
        assert "enlist-platform.service" in Unit(unit)["Install"]["WantedBy"].split()


@pytest.mark.parametrize("name", EDGE)
def test_the_edge_is_started_once_the_platform_has_written_its_key(name: str) -> None:
    platform = Unit("enlist-platform.service")
    assert name in platform["Unit"]["Wants"].split()
    assert platform["Service"]["Type"] == "notify"
    unit = Unit(name)
    assert "enlist-platform.service" in unit["Unit"]["After"].split()
    assert not unit.has_section("Install"), (
        "an installer starts what has one, before there is a key"
    )
