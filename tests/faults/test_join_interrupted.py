"""A join that is killed, or whose answer is lost: the same command again finishes (D12)."""

import pathlib
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.support import machine, real_platform, relay
from wire_protocol import join_token

STEP_SECONDS = 0.01
MOST_KILLS = 60
SHARDS = 4


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    folder = tmp_path_factory.mktemp("interrupted") / "platform"
    with real_platform.running(folder) as running:
        yield running


def killed_after(worker: machine.Machine, token: str, seconds: float) -> bool:
    """Starts the join and kills it after that time; whether it was still running."""
    with subprocess.Popen(
        [*real_platform.ENLIST, *worker.join_arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=real_platform.clean_environment(),
    ) as process:
        assert process.stdin is not None
        began = time.monotonic()
        process.stdin.write(token.encode())
        process.stdin.close()
        try:
            process.wait(max(0.0, began + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return True
        return False


def lifetime(platform: real_platform.RealPlatform, folder: pathlib.Path, node_id: str) -> float:
    """How long a whole join takes here and now, in seconds."""
    worker = machine.in_folder(folder, name=node_id)
    token = machine.issue(platform, node_id)
    began = time.monotonic()
    worker.join(token)
    return time.monotonic() - began


def kill_and_finish(
    platform: real_platform.RealPlatform,
    folder: pathlib.Path,
    *,
    name: str,
    shard: int,
    step: float,
) -> int:
    """Kills one join a step, each later than the one before; all finish when repeated."""
    kills, turn = 0, shard
    alive = True
    while alive:
        node_id = f"{name}-{turn}"
        worker = machine.in_folder(folder, name=node_id)
        token = machine.issue(platform, node_id)
        alive = killed_after(worker, token, turn * step)
        kills += alive
        worker.join(token)
        assert machine.node(platform, node_id)["state"] == "enrolled"
        turn += SHARDS
    return kills


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_join_killed_at_any_time_of_its_life_finishes_when_repeated(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path, shard: int
) -> None:
    """Every 10 ms, or on a slow machine as many times as its life has such steps on a fast one."""
    step = max(STEP_SECONDS, lifetime(platform, tmp_path, f"whole-{shard}") / MOST_KILLS)
    kills = kill_and_finish(platform, tmp_path, name="kill", shard=shard, step=step)
    assert kills > 2, "the join ended before it could be killed"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_join_killed_after_every_ten_milliseconds_of_its_life_finishes_when_repeated(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path, shard: int
) -> None:
    kills = kill_and_finish(platform, tmp_path, name="kill-long", shard=shard, step=STEP_SECONDS)
    assert kills > 2, "the join ended before it could be killed"


def test_a_lost_answer_is_fetched_by_the_same_command(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    parts = urllib.parse.urlsplit(platform.enrollment_url)
    with relay.running((str(parts.hostname), int(parts.port or 0)), lose=1) as between:
        token = through(between, machine.issue(platform, "lost-1"))
        real_platform.run_enlist(*worker.join_arguments, stdin=token)
        assert between.lost == 1, "the relay lost no answer, so the test showed nothing"
    assert machine.node(platform, "lost-1")["generation"] == 1


def test_a_machine_whose_answers_are_always_lost_ends_temporary_and_can_finish_later(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    parts = urllib.parse.urlsplit(platform.enrollment_url)
    with relay.running((str(parts.hostname), int(parts.port or 0)), lose=1000) as between:
        token = through(between, machine.issue(platform, "lost-2"))
        worker.join(token, expect=75)
        between.lose = 0
        worker.join(token)
    assert machine.node(platform, "lost-2")["generation"] == 1


def through(between: relay.Relay, token: str) -> str:
    """The same join token, with the relay's address in place of the listener's."""
    join = join_token.decode(token)
    return join_token.encode(
        join_token.JoinToken(
            url=f"https://127.0.0.1:{between.port}",
            node_id=join.node_id,
            token=join.token,
            pins=join.pins,
            trust_key_ids=join.trust_key_ids,
            expires_at=join.expires_at,
        )
    )
