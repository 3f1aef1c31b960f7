"""A restore leaves a master key that is there as it is: it may be a Platform's only one."""

import dataclasses
import pathlib

import pytest

from platform_server.backup import failures, restore, under_way
from platform_server.sealing import key_file
from platform_server.store import contract
from runtime_kit import crash_points
from tests.support import backups, domain

NOW = domain.START
OTHER = f"emk_{'ab' * 32}\n"


class Killed(Exception):
    """The restore ended here, with everything after it undone."""


@dataclasses.dataclass(kw_only=True)
class Rig:
    """A backup, where it is restored to, and its key."""

    here: domain.Domain
    pair: backups.Pair
    file: pathlib.Path
    folder: pathlib.Path
    outside: pathlib.Path

    async def put_back(self, *, key_path: pathlib.Path | None = None) -> None:
        await backups.put_back(
            self.file, pair=self.pair, folder=self.folder, now=NOW, key_path=key_path
        )

    async def killed_at(
        self, point: str, monkeypatch: pytest.MonkeyPatch, *, key_path: pathlib.Path | None = None
    ) -> None:
        """A try that gets as far as the point."""

        def reach(name: str) -> None:
            if name == point:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(crash_points, "reach", reach)
            with pytest.raises(Killed):
                await self.put_back(key_path=key_path)

    def is_whole(self, key_path: pathlib.Path) -> bool:
        keys = key_file.read(key_path)
        return keys == self.here.keyring.keys() and under_way.find(self.folder) is None


@pytest.fixture
async def rig(store_url: str, store: contract.Store, tmp_path: pathlib.Path) -> Rig:
    here, pair = await domain.build(store, folder=tmp_path), backups.new_pair()
    file = tmp_path / "made.enlist"
    file.write_bytes(await backups.make(store_url, keyring=here.keyring, pair=pair, now=NOW))
    outside = tmp_path / "keys"
    outside.mkdir()
    return Rig(
        here=here,
        pair=pair,
        file=file,
        folder=tmp_path / "restored",
        outside=outside / "master.key",
    )


@pytest.mark.parametrize("point", [restore.MARKED, restore.FILLED])
async def test_a_restore_goes_on_only_with_the_master_keys_place_it_was_begun_with(
    rig: Rig, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.killed_at(point, monkeypatch)
    rig.outside.write_text(OTHER)
    with pytest.raises(failures.TargetInUse, match="was begun with its master key at"):
        await rig.put_back(key_path=rig.outside)
    assert rig.outside.read_text() == OTHER
    assert not (rig.folder / "master.key").exists()
    await rig.put_back()
    assert rig.is_whole(rig.folder / "master.key")


@pytest.mark.parametrize("point", [restore.MARKED, restore.FILLED])
async def test_another_master_key_that_came_between_two_tries_is_left_as_it_is(
    rig: Rig, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.killed_at(point, monkeypatch, key_path=rig.outside)
    rig.outside.write_text(OTHER)
    rig.outside.chmod(0o600)
    for _ in range(2):
        with pytest.raises(failures.TargetInUse, match="Another master key lies in"):
            await rig.put_back(key_path=rig.outside)
        assert rig.outside.read_text() == OTHER
    rig.outside.unlink()
    await rig.put_back(key_path=rig.outside)
    assert rig.is_whole(rig.outside)


async def test_a_restore_killed_behind_its_master_key_goes_on_with_that_key(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.killed_at(restore.KEY_KEPT, monkeypatch)
    before = (rig.folder / "master.key").stat()
    await rig.put_back()
    assert (rig.folder / "master.key").stat().st_ino == before.st_ino
    assert rig.is_whole(rig.folder / "master.key")


async def test_a_link_in_the_master_keys_place_is_not_written_through(rig: Rig) -> None:
    rig.outside.symlink_to(rig.outside.with_name("elsewhere"))
    with pytest.raises(failures.TargetInUse, match="There is a master key already"):
        await rig.put_back(key_path=rig.outside)
    assert not rig.outside.with_name("elsewhere").exists()
