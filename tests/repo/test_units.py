"""The systemd units: systemd itself finds nothing wrong in them, and they give up what they can."""

import configparser
import pathlib
import re
import shutil
import subprocess

import pytest

from tests.repo import project
from wire_protocol import problems

UNITS = sorted(
    path
    for path in (project.ROOT / "systemd").rglob("*")
    if path.suffix in {".service", ".socket", ".path", ".timer"}
)
SERVICES = [path for path in UNITS if path.suffix == ".service"]
MOST_EXPOSED, MOST_EXPOSED_ROOT = 1.5, 4.0
ROOTS = {"enlist-helper.service", "enlist-machines.service"}
# Services that go on for ever while what is wrong may pass.
LASTING = {"enlist-agent.service", "enlist-join.service"}
_NOT_INSTALLED_HERE = re.compile(
    r"Command /opt/enlist/\S+ is not executable: No such file or directory$"
)

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed here"
)


class Unit(configparser.RawConfigParser):
    """A unit file, read: the last value of each key, which is enough for what is asked here."""

    def __init__(self) -> None:
        super().__init__(strict=False, interpolation=None, delimiters=("=",))

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def read(name: str) -> Unit:
    (path,) = [path for path in UNITS if path.name == name]
    unit = Unit()
    unit.read_string(path.read_text())
    return unit


@needs_systemd
def test_systemd_finds_nothing_wrong_but_that_nothing_is_installed_here() -> None:
    assert UNITS
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *UNITS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = (done.stdout + done.stderr).splitlines()
    assert [line for line in said if not _NOT_INSTALLED_HERE.search(line)] == []


@needs_systemd
@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_no_service_is_exposed_by_more_than_its_limit(path: pathlib.Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    limit = MOST_EXPOSED_ROOT if path.name in ROOTS else MOST_EXPOSED
    assert float(found.group(1)) <= limit, done.stdout


@pytest.mark.parametrize("name", sorted(LASTING))
def test_what_may_pass_is_tried_for_ever_and_what_will_not_stops(name: str) -> None:
    unit = read(name)
    stopping = {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()}
    assert stopping == set(problems.Exit) - {
        problems.Exit.DONE,
        problems.Exit.OUR_FAULT,
        problems.Exit.TEMPORARY,
    }
    assert unit["Unit"]["StartLimitIntervalSec"] == "0", "systemd gives up after five starts"
    assert unit["Service"]["Restart"] in ("always", "on-failure")
    assert int(unit["Service"]["RestartSec"]) >= 5


def test_a_joined_machine_starts_its_agent_once_and_not_for_ever() -> None:
    assert set(read("enlist-agent.path")["Path"]) == {"PathChanged", "Unit"}, "see its comment"


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_every_service_has_limits_of_memory_tasks_files_and_stopping(
    path: pathlib.Path,
) -> None:
    service = read(path.name)["Service"]
    assert {"MemoryMax", "TasksMax", "LimitNOFILE", "TimeoutStopSec"} <= set(service)
