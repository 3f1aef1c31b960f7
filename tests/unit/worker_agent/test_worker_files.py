"""The worker's JSON files: what is written is read back, and damage is never 'not there'."""

import dataclasses
import datetime
import json
import pathlib

import pytest

from runtime_kit import private_files
from tests.support import held_sets
from wire_protocol import ids, pins
from worker_agent.enrollment import stored
from worker_agent.settings import agent_file, documents, failures, join_file, paths, trust_file

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
PIN = pins.Pin("sha256:" + "ab" * 32)
AGENT = agent_file.AgentFile(
    node_id=ids.NodeId("web-1"),
    generation=3,
    connectivity=agent_file.Connectivity.LISTEN,
    addresses=("192.0.2.7", "2001:db8::7"),
    port=8443,
    reported_labels={"rack": "b4", "empty": ""},
    gateway_url=None,
    gateway_pins=(PIN,),
    joined_at=NOW,
)
JOIN = join_file.JoinFile(
    platform_url="https://p.example:8444",
    platform_id=ids.PlatformId("plt_1"),
    node_id=ids.NodeId("web-1"),
    mode=join_file.Mode.PINS,
    given_pins=(PIN,),
    pins=(PIN,),
    ca_pem=None,
    enrollment_id=ids.EnrollmentId("0123456789abcdef"),
    joined_at=NOW,
)


@pytest.fixture
def where(tmp_path: pathlib.Path) -> paths.Paths:
    return paths.Paths(folder=tmp_path)


def test_each_file_is_read_back_as_it_was_written(where: paths.Paths) -> None:
    held = held_sets.held(held_sets.Key(), held_sets.Key())
    agent_file.write(where.agent, AGENT)
    join_file.write(where.join, JOIN)
    trust_file.write(where.trust, held)
    assert agent_file.read(where.agent) == AGENT
    assert join_file.read(where.join) == JOIN
    assert trust_file.read(where.trust) == held


def test_a_private_ca_is_kept_whole(where: paths.Paths) -> None:
    by_ca = dataclasses.replace(JOIN, mode=join_file.Mode.CA_FILE, pins=(), ca_pem="PEM\n" * 4000)
    join_file.write(where.join, by_ca)
    assert join_file.read(where.join) == by_ca


def test_a_missing_file_is_none(where: paths.Paths) -> None:
    assert agent_file.read(where.agent) is None


DAMAGES = {
    "empty": b"",
    "blank": b"\n\n",
    "cut short": b'{"file_version": 1, "node_id": "web',
    "a list": b"[]",
    "another version": b'{"file_version": 2}',
    "no version": b'{"node_id": "web-1"}',
    "a wrong type": b'{"file_version": 1, "node_id": 7}',
    "deeply nested": b"[" * 100_000,
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_told_and_names_the_file(where: paths.Paths, case: str) -> None:
    for path in (where.agent, where.join, where.trust):
        path.touch(mode=0o600)
        path.write_bytes(DAMAGES[case])
    for read in (agent_file.read, join_file.read, trust_file.read):
        with pytest.raises(documents.Damaged, match=str(where.folder)):
            read(where.agent)
    found = stored.read(where)
    assert (found.agent, found.join, found.held) == (None, None, None)
    assert len(found.faults) == 3
    assert found.has_joined, "damage is not an unfinished join"


def test_without_an_agent_file_the_machine_has_not_joined(where: paths.Paths) -> None:
    join_file.write(where.join, JOIN)
    found = stored.read(where)
    assert (found.has_joined, found.join, found.faults) == (False, JOIN, ())


def test_a_check_reads_lax_files_as_they_are(where: paths.Paths) -> None:
    agent_file.write(where.agent, AGENT)
    where.agent.chmod(0o644)
    assert stored.read(where, reader=private_files.read_bounded).agent == AGENT
    lax = stored.read(where)
    assert (lax.agent, lax.has_joined) == (None, True)


@pytest.mark.parametrize("field", ["node_id", "connectivity", "port", "joined_at", "gateway_pins"])
def test_a_field_out_of_shape_is_damage(where: paths.Paths, field: str) -> None:
    agent_file.write(where.agent, AGENT)
    document = json.loads(where.agent.read_bytes())
    document[field] = "not so"
    where.agent.write_text(json.dumps(document))
    with pytest.raises(documents.Damaged):
        agent_file.read(where.agent)


def test_a_file_that_others_may_read_is_damage(where: paths.Paths) -> None:
    agent_file.write(where.agent, AGENT)
    where.agent.chmod(0o644)
    with pytest.raises(documents.Damaged, match="0644"):
        agent_file.read(where.agent)


def test_pins_of_statements_count_in_pin_mode_alone() -> None:
    assert [mode for mode in join_file.Mode if mode.adopts_statements] == [join_file.Mode.PINS]


@pytest.mark.parametrize(
    ("has_pins", "has_ca", "mode"),
    [
        (True, False, join_file.Mode.PINS),
        (True, True, join_file.Mode.PINS_AND_CA_FILE),
        (False, True, join_file.Mode.CA_FILE),
        (False, False, join_file.Mode.PUBLIC_ROOTS),
    ],
)
def test_the_mode_follows_from_what_was_given(
    has_pins: bool,  # noqa: FBT001 - a row of the table
    has_ca: bool,  # noqa: FBT001 - a row of the table
    mode: join_file.Mode,
) -> None:
    assert join_file.mode_of(has_pins=has_pins, has_ca=has_ca) is mode


@pytest.mark.parametrize(
    ("given", "environment", "uid", "folder"),
    [
        ("/srv/w", {"ENLIST_DATA_DIR": "/srv/other"}, 0, "/srv/w"),
        (None, {"ENLIST_DATA_DIR": "/srv/other"}, 0, "/srv/other"),
        (None, {}, 0, "/var/lib/enlist/worker"),
        (None, {"HOME": "/home/amy"}, 1000, "/home/amy/.local/state/enlist/worker"),
        (None, {"XDG_STATE_HOME": "/st", "HOME": "/home/amy"}, 1000, "/st/enlist/worker"),
        (None, {"XDG_STATE_HOME": "rel", "HOME": "/h"}, 1000, "/h/.local/state/enlist/worker"),
    ],
)
def test_the_data_directory_comes_from_flag_environment_and_account(
    given: str | None, environment: dict[str, str], uid: int, folder: str
) -> None:
    found = paths.resolve(given, environment=environment, uid=uid)
    assert str(found.folder) == folder


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_file_in_the_place_of_the_data_directory_is_misuse(
    tmp_path: pathlib.Path, below: str
) -> None:
    (tmp_path / "hostname").touch()
    with pytest.raises(failures.Misuse, match="data directory"):
        paths.resolve(f"{tmp_path}/hostname{below}", environment={}, uid=0)
