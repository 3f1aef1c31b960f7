"""`enlist worker update`: as root on an installed machine, by a real Platform's bundle port."""

import asyncio
import functools
import os
import pathlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from tests.support import bundles, installed_here, machine, real_platform, worker_command

T = TypeVar("T")
NEWER = "99.0.0"  # no node runs it: the Platform is not asked to let it in
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="an account and mounts of its own need root"),
    pytest.mark.skipif(
        installed_here.python_of_all() is None,
        reason="there is no Python of the distribution's here that releases are built for",
    ),
]


class Rig:
    """A machine that has joined a Platform, which has a newer release to give."""

    def __init__(
        self, here: installed_here.Here, platform: real_platform.RealPlatform, folder: pathlib.Path
    ) -> None:
        self.here = here
        self.platform = platform
        self.folder = folder

    async def update(self, *more: str, as_account: bool = False) -> worker_command.Ended:
        """The command."""
        return await self.here.run(
            *(installed_here.ENLIST, "worker", "update", "--from", self.platform.said["bundle"]),
            *more,
            as_account=as_account,
        )

    def offer(self, *, key: pathlib.Path | None = None, **changed: Any) -> bundles.Released:
        """Puts a release on the Platform's shelf."""
        python = installed_here.python_of_all()
        assert python is not None
        made = bundles.released("worker", pythons=(python.version,), **changed)
        self.platform.enlist(
            *("platform", "bundles", "add", str(made.archive)),
            *("--release-key", str(key or made.public_key)),
        )
        return made

    def current(self) -> str:
        """The release in use."""
        return (self.here.folder / "opt/enlist/worker/current").readlink().name


@pytest.fixture
async def rig(tmp_path: pathlib.Path) -> AsyncIterator[Rig]:
    folder = tmp_path / "machine"
    await asyncio.to_thread(folder.mkdir)
    here = await asyncio.to_thread(installed_here.make, folder)
    starting = functools.partial(
        real_platform.running, tmp_path / "platform", "--gateway-port", "0", "--bundle-port", "0"
    )
    running = starting()
    platform = await asyncio.to_thread(running.__enter__)
    try:
        done = await here.run(
            *(installed_here.ENLIST, "worker", "join", "-"),
            stdin=machine.issue(platform, "web-1"),
        )
        assert done.code == 0, done.err
        yield Rig(here, platform, tmp_path)
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


def _in_thread(work: Callable[[], T]) -> Coroutine[Any, Any, T]:
    return asyncio.to_thread(work)


async def test_the_newest_release_is_fetched_checked_and_in_use(rig: Rig) -> None:
    before = rig.current()
    offered = await _in_thread(lambda: rig.offer(version=NEWER))
    planned = await rig.update("--check", "-o", "json")
    assert planned.code == 0, planned.err
    assert planned.document["version"] == NEWER
    assert rig.current() == before
    done = await rig.update("-o", "json")
    assert done.code == 0, done.err
    assert done.document["release"] == offered.release.id
    assert rig.current() == offered.release.id
    assert rig.here.owners() == {installed_here.UID}
    assert not (rig.here.data / "staged").exists()
    left = sorted(path.name for path in (rig.here.folder / "opt/enlist/worker").iterdir())
    assert not [name for name in left if name.startswith(".incoming")]
    said = await rig.here.run(installed_here.ENLIST, "--version")
    assert said.out.split() == ["enlist", NEWER]


async def test_as_the_account_it_names_what_needs_root(rig: Rig) -> None:
    done = await rig.update(as_account=True)
    assert done.code == 2
    assert "sudo enlist worker update" in done.err


async def test_a_platform_without_releases_is_told(rig: Rig) -> None:
    done = await rig.update()
    assert done.code == 5, done.err
    assert "enlist platform bundles add" in done.err


async def test_an_older_release_is_not_taken(rig: Rig) -> None:
    await _in_thread(lambda: rig.offer(version="0.0.1"))
    done = await rig.update()
    assert done.code == 4, done.err
    assert "0.0.1" in done.err


async def test_a_server_that_is_not_the_platform_is_asked_nothing(rig: Rig) -> None:
    done = await rig.here.run(
        *(installed_here.ENLIST, "worker", "update"),
        *("--from", rig.platform.said["gateway"]),  # another key of the same machine
    )
    assert done.code == 6, done.err
