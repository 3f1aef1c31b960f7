"""`session.json` as root reads it in another account's folder: a plain file or nothing."""

import os
import pathlib

import pytest

from runtime_kit import clock as clock_kit
from wire_protocol import session, times
from worker_agent.session import told
from worker_agent.settings import paths


@pytest.fixture
def where(tmp_path: pathlib.Path) -> paths.Paths:
    found = paths.Paths(folder=tmp_path / "worker")
    found.folder.mkdir(mode=0o700)
    found.agent.write_text("{}")
    return found


@pytest.fixture
def teller(where: paths.Paths) -> told.Teller:
    clock = clock_kit.ManualClock(times.from_rfc3339("2026-06-01T12:00:00Z"))
    made = told.Teller(where, instance="ab" * 16, clock=clock)
    made.tell(state="open", gateway="platform:8445")
    clock.advance(30)
    return made


def test_what_was_told_is_read_with_the_heartbeats_time(
    where: paths.Paths, teller: told.Teller
) -> None:
    teller.heard()
    said = told.read(where.session)
    assert said is not None
    assert (said.state, said.gateway) == ("open", "platform:8445")
    assert said.last_heartbeat_at is not None
    assert times.from_rfc3339(said.last_heartbeat_at) == times.from_rfc3339("2026-06-01T12:00:30Z")


@pytest.mark.usefixtures("teller")
def test_of_the_running_agents_instance_only_a_hash_is_on_the_disk(where: paths.Paths) -> None:
    content = where.session.read_text()
    assert "ab" * 16 not in content
    said = told.read(where.session)
    assert said is not None
    assert said.instance_sha256 == session.shown_instance("ab" * 16)
    assert said.instance_sha256 in content


@pytest.mark.usefixtures("teller")
def test_a_link_in_the_files_place_is_not_followed(where: paths.Paths) -> None:
    elsewhere = where.session.with_name("elsewhere.json")
    where.session.rename(elsewhere)
    assert told.read(elsewhere) is not None
    where.session.symlink_to(elsewhere)
    assert told.read(where.session) is None


@pytest.mark.timeout(10)
def test_nobody_waits_for_a_pipe_in_the_files_place(where: paths.Paths) -> None:
    os.mkfifo(where.session)
    assert told.read(where.session) is None


@pytest.mark.usefixtures("teller")
def test_a_file_larger_than_any_that_was_told_is_nothing(where: paths.Paths) -> None:
    where.session.write_bytes(where.session.read_bytes() + b" " * 20_000)
    assert told.read(where.session) is None
