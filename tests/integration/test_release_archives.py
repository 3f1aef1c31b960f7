"""An Agent that fetches an archive over TLS: the hash decides, whatever the servers do."""

import hashlib
import os
import pathlib
import random
import stat

import pytest

from runtime_kit import clock as clock_kit
from runtime_kit import retry
from tests.support import archive_server
from worker_agent.orders import archive
from worker_agent.settings import failures, paths

SHA256 = hashlib.sha256(archive_server.CONTENT).hexdigest()
AROUND = archive.Around(
    clock=clock_kit.SystemClock(),
    chance=random.Random(1),
    environment={},
    tries=retry.Schedule(first_seconds=0, cap_seconds=0, tries=4),
    idle_seconds=1.0,
)
Way = archive_server.Way


async def _fetch(where: paths.Paths, *servers: archive_server.Server) -> pathlib.Path:
    wanted = archive_server.update(*servers, sha256=SHA256)
    return await archive.fetch(where, wanted, around=AROUND)


async def test_the_archive_is_there_whole_and_private(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.WHOLE) as server:
        where = archive_server.joined(tmp_path, server.issued)
        path = await _fetch(where, server)
    assert path.read_bytes() == archive_server.CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(where.staged.stat().st_mode) == 0o700
    assert "range" not in server.heads[0].lower()
    archive.clear(where)
    assert not where.staged.exists()


async def test_what_was_cut_off_is_gone_on_with(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.CUT, Way.RANGES) as server:
        where = archive_server.joined(tmp_path, server.issued)
        path = await _fetch(where, server)
    assert path.read_bytes() == archive_server.CONTENT
    assert f"range: bytes={len(archive_server.CONTENT) // 2}-" in server.heads[1].lower()


async def test_a_server_that_cannot_go_on_begins_anew(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.CUT, Way.WHOLE) as server:
        where = archive_server.joined(tmp_path, server.issued)
        path = await _fetch(where, server)
    assert path.read_bytes() == archive_server.CONTENT


@pytest.mark.parametrize(
    "way", [Way.BUSY, Way.NOT_THERE, Way.ANOTHER, Way.LONGER, Way.ENDLESS, Way.SILENT, Way.NOT_HTTP]
)
async def test_another_address_makes_up_for_one_that_fails(
    way: archive_server.Way, tmp_path: pathlib.Path
) -> None:
    async with (
        archive_server.serving(tmp_path, way) as bad,
        archive_server.serving(tmp_path, Way.RANGES) as good,
    ):
        where = archive_server.joined(tmp_path, bad.issued, good.issued)
        path = await _fetch(where, bad, good)
    assert path.read_bytes() == archive_server.CONTENT
    assert len(good.heads) == 1


@pytest.mark.parametrize("way", [Way.ANOTHER, Way.LONGER, Way.ENDLESS, Way.NOT_THERE])
async def test_what_is_not_the_archive_is_refused_and_not_kept(
    way: archive_server.Way, tmp_path: pathlib.Path
) -> None:
    async with archive_server.serving(tmp_path, way) as server:
        where = archive_server.joined(tmp_path, server.issued)
        with pytest.raises(failures.Refused):
            await _fetch(where, server)
    assert sum(path.stat().st_size for path in where.staged.iterdir()) == 0
    assert len(server.heads) == 1


async def test_a_redirect_is_not_followed(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.ELSEWHERE) as server:
        where = archive_server.joined(tmp_path, server.issued)
        with pytest.raises(failures.Refused, match="302"):
            await _fetch(where, server)


async def test_a_server_that_proves_nothing_is_asked_nothing(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.WHOLE) as server:
        where = archive_server.joined(tmp_path, archive_server.Server(ways=[]).issued)
        with pytest.raises(failures.Refused):
            await _fetch(where, server)
    assert server.heads == []


@pytest.mark.parametrize("way", [Way.SILENT, Way.BUSY, Way.NOT_HTTP])
async def test_what_may_pass_is_tried_again_a_few_times(
    way: archive_server.Way, tmp_path: pathlib.Path
) -> None:
    async with archive_server.serving(tmp_path, way) as server:
        where = archive_server.joined(tmp_path, server.issued)
        with pytest.raises(failures.Temporary):
            await _fetch(where, server)
    assert len(server.heads) == 4


async def test_an_earlier_archive_makes_room(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.WHOLE) as server:
        where = archive_server.joined(tmp_path, server.issued)
        where.staged.mkdir(mode=0o700)
        (where.staged / ("0" * 64 + ".tar")).write_bytes(b"earlier")
        path = await _fetch(where, server)
    assert list(where.staged.iterdir()) == [path]


async def test_what_is_here_already_is_not_fetched_again(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.WHOLE) as server:
        where = archive_server.joined(tmp_path, server.issued)
        await _fetch(where, server)
        await _fetch(where, server)
    assert len(server.heads) == 1


async def test_a_disk_without_room_is_said_before_anything_is_asked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archive_server.serving(tmp_path, Way.WHOLE) as server:
        where = archive_server.joined(tmp_path, server.issued)
        free = os.statvfs_result((4096, 4096, 100, 100, 100, 100, 100, 100, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _path: free)
        with pytest.raises(failures.Temporary, match="409600 are free"):
            await _fetch(where, server)
    assert server.heads == []
