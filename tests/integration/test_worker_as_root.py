"""`enlist worker …` typed as root on an installed machine: it runs as the worker's account."""

import json
import os
import pathlib
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from operator_cli import pending_join
from root_helper import seed
from runtime_kit import crash_points
from tests.support import imaginary_gateway, imaginary_platform, installed_here
from worker_agent.enrollment import flow
from worker_agent.settings import paths

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mounts of its own"),
    pytest.mark.skipif(
        installed_here.python_of_all() is None or shutil.which("unshare") is None,
        reason="needs the distribution's Python and unshare",
    ),
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("worker-as-root"),
]
FINISH = (installed_here.PYTHON, "-I", "-m", "operator_cli.pending_join", "--data-dir")
SEED = (installed_here.PYTHON, "-I", "-m", "root_helper.seed", "--data-dir")
POINTS = (pending_join.WRITTEN, pending_join.ENDED, flow.ROOM_CHECKED, flow.AGENT_SAVED)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Below /var/tmp, where every account may go."""
    made = tempfile.TemporaryDirectory(dir="/var/tmp", prefix="enlist-test-")
    pathlib.Path(made.name).chmod(0o755)
    return made


@pytest.fixture(scope="module")
def first() -> Iterator[installed_here.Here]:
    """Laid out once for all tests here."""
    with _folder() as name:
        yield installed_here.make(pathlib.Path(name))


@pytest.fixture
def here(first: installed_here.Here) -> Iterator[installed_here.Here]:
    with _folder() as name:
        yield installed_here.another(first, pathlib.Path(name))


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


def join(*more: str) -> tuple[str, ...]:
    return (installed_here.ENLIST, "worker", "join", "-", *more)


def pending(here: installed_here.Here) -> pathlib.Path:
    return here.data / pending_join.FILE


async def test_the_join_leaves_nothing_of_roots_and_tells_the_helper_whom_to_believe(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    done = await here.run(*join("-o", "json"), stdin=platform.issue("web-1"), umask=0)
    assert done.code == 0, done.err
    assert done.document["node_id"] == "web-1"
    assert here.owners() == {installed_here.UID}
    assert here.modes() == {"0o700", "0o600"}
    assert not pending(here).exists()
    believed = json.loads((here.helper / "trust.json").read_text())
    assert believed["node_id"] == "web-1"
    assert sorted(path.name for path in here.helper.iterdir()) == ["trust.json"]
    assert {path.stat().st_uid for path in here.helper.iterdir()} == {0}

    for command in ("status", "refresh-trust"):
        again = await here.run(installed_here.ENLIST, "worker", command)
        assert again.code == 0, again.err
    assert here.owners() == {installed_here.UID}


async def test_a_token_that_only_root_may_read_is_handed_over_and_never_an_argument(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    token = here.folder / "token"
    token.write_text(platform.issue("web-1"))
    token.chmod(0o600)
    done = await here.run(installed_here.ENLIST, "worker", "join", "--join-token-file", str(token))
    assert done.code == 0, done.err
    assert here.owners() == {installed_here.UID}


async def test_what_is_refused_is_not_tried_again(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    token = platform.issue("web-1")
    platform.enrollments.clear()
    done = await here.run(*join(), stdin=token)
    assert done.code == 3, done.err
    assert not pending(here).exists()
    assert list(here.helper.iterdir()) == []
    assert here.owners() == {installed_here.UID}


@pytest.mark.long  # the join itself asks for twenty seconds before it gives up
async def test_without_a_platform_the_join_stays_pending_and_the_unit_finishes_it(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    token = platform.issue("web-1")
    platform.faults = [imaginary_platform.answer_with(503)] * 50
    done = await here.run(*join(), stdin=token)
    assert done.code == 75, done.err
    assert pending(here).stat().st_mode & 0o7777 == 0o600
    assert pending(here).stat().st_uid == installed_here.UID
    platform.faults = []
    await finishes(here)


@pytest.mark.parametrize("point", POINTS)
async def test_a_join_killed_at_the_point_is_finished_by_the_unit(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform, point: str
) -> None:
    done = await here.run(
        *join(), stdin=platform.issue("web-1"), environment={"ENLIST_CRASH_AT": point}
    )
    assert done.code == 128 + signal.SIGKILL, done.err
    assert pending(here).exists()
    await finishes(here)


async def test_a_kill_after_the_helper_believes_changes_nothing(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    done = await here.run(
        *join(), stdin=platform.issue("web-1"), environment={"ENLIST_CRASH_AT": seed.SEEDED}
    )
    assert done.code == -signal.SIGKILL
    again = await here.run(*join(), stdin="")
    assert again.code == 2, "an empty token is none"
    again = await here.run(installed_here.ENLIST, "worker", "join")
    assert again.code == 0, again.err
    assert sorted(path.name for path in here.helper.iterdir()) == ["trust.json"]


async def finishes(here: installed_here.Here) -> None:
    """What enlist-join.service runs, as the account, and then as root."""
    done = await here.run(*FINISH, str(installed_here.DATA), as_account=True, umask=0o077)
    assert done.code == 0, done.err
    seeded = await here.run(*SEED, str(installed_here.DATA))
    assert seeded.code == 0, seeded.err
    assert not pending(here).exists()
    assert here.owners() == {installed_here.UID}
    assert (here.data / "agent.json").exists()
    assert sorted(path.name for path in here.helper.iterdir()) == ["trust.json"]
    nothing = await here.run(*FINISH, str(installed_here.DATA), as_account=True)
    assert (nothing.code, nothing.err) == (0, "No join is pending.\n")


def test_the_points_cover_every_step() -> None:
    own = {name for name in crash_points.declared() if name.startswith("pending-join.")}
    assert own < set(POINTS)
    assert paths.Paths(folder=pathlib.Path("/")).pending_join.name == pending_join.FILE


async def test_renewing_and_leaving_as_root_leave_nothing_of_roots_and_the_helper_forgets(
    here: installed_here.Here, tmp_path: pathlib.Path
) -> None:
    async with imaginary_gateway.running(tmp_path / "gateway") as gateway:
        done = await here.run(*join(), stdin=gateway.platform.issue("web-1"))
        assert done.code == 0, done.err
        for words in (("renew", "--check"), ("renew", "--new-key")):
            done = await here.run(installed_here.ENLIST, "worker", *words)
            assert done.code == 0, done.err
            assert here.owners() == {installed_here.UID}
        assert (here.helper / "trust.json").exists()
        checked = await here.run(installed_here.ENLIST, "worker", "leave", "--check")
        assert checked.code == 0, checked.err
        assert (here.helper / "trust.json").exists()
        done = await here.run(installed_here.ENLIST, "worker", "leave", "--yes")
        assert done.code == 0, done.err
    assert not (here.data / "agent.json").exists()
    assert here.owners() == {installed_here.UID}
    assert [path.name for path in here.helper.iterdir()] == ["left"]


async def test_another_data_directory_is_somebodys_own_affair(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    done = await here.run(*join("--data-dir", "/var/lib/enlist/own"), stdin=platform.issue("web-1"))
    assert done.code == 0, done.err
    assert (here.folder / "state/own/agent.json").stat().st_uid == 0
    assert list(here.data.iterdir()) == []


async def test_the_data_directory_by_another_name_is_still_the_accounts(
    here: installed_here.Here, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    name = "/var/lib/enlist/../enlist/worker"
    done = await here.run(*join("--data-dir", name), stdin=platform.issue("web-1"))
    assert done.code == 0, done.err
    assert here.owners() == {installed_here.UID}
    assert (here.helper / "trust.json").exists()
