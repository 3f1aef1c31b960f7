"""A Platform is taken away from a host: what becomes of the local machines that it made there."""

import dataclasses
import pathlib
import signal
import subprocess

import pytest

from installer import failures, local_machines, uninstall, units, waiting
from installer import layout as layout_kit
from installer import progress as progress_kit
from provisioning.local import launching, machines
from tests.support import deep_trees

NAMES = ("db-1-0123456789", "web-1-0123456789")
INSTALL_SH = pathlib.Path(__file__).parents[2] / "installer" / "install.sh"


@pytest.fixture
def layout(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> layout_kit.Layout:
    """A Platform of root's as far as folders go, with neither units nor accounts of this host."""
    monkeypatch.setattr(units, "is_running", lambda: False)
    places = layout_kit.rootless(
        layout_kit.Role.PLATFORM,
        prefix=tmp_path / "opt",
        data_dir=tmp_path / "lib" / "platform",
        environment={},
    )
    for folder in (places.releases, places.data_dir):
        folder.mkdir(parents=True)
    (places.data_dir / "store").write_text("all that it knows")
    return dataclasses.replace(
        places, machines=tmp_path / "lib" / "machines", images=tmp_path / "cache" / "images"
    )


def places_of(layout: layout_kit.Layout) -> tuple[pathlib.Path, pathlib.Path]:
    assert layout.machines is not None
    assert layout.images is not None
    return layout.machines, layout.images


def made(layout: layout_kit.Layout) -> None:
    """Two machines with disks, an image, and what their maker leaves beside them."""
    folder, images = places_of(layout)
    for name in NAMES:
        (folder / name / "upper" / "etc").mkdir(parents=True)
        (folder / name / machines.RECORD).write_text("{}")
        (folder / name / "state.json").write_text("{}")
    left_beside(folder, images)


def left_beside(folder: pathlib.Path, images: pathlib.Path) -> None:
    (folder / ".making-demo-0123456789").mkdir(parents=True)
    (folder / "cut-off-0123456789").mkdir()  # its record went last, and then its remover died
    (folder / ".lock").touch()
    (images / "debian-12-nspawn-0123456789abcdef" / "usr").mkdir(parents=True)


def removed(layout: layout_kit.Layout, tmp_path: pathlib.Path, *, with_machines: bool) -> list[str]:
    return uninstall.uninstall(
        layout,
        progress=progress_kit.Progress(),
        waits=waiting.SystemWaits(),
        top=tmp_path,
        with_machines=with_machines,
    )


def test_the_places_are_those_that_machines_are_made_in() -> None:
    places = layout_kit.system(layout_kit.Role.PLATFORM)
    assert (places.machines, places.images) == (machines.FOLDER, machines.IMAGES)
    assert layout_kit.system(layout_kit.Role.WORKER).machines is None
    assert local_machines.RECORD == machines.RECORD
    assert launching.unit_of("x") == "enlist-machine-x.service"


@pytest.mark.parametrize("was_used", [True, False])
def test_without_machines_their_folder_and_images_go_too_and_again_is_fine(
    layout: layout_kit.Layout, tmp_path: pathlib.Path, *, was_used: bool
) -> None:
    folder, images = places_of(layout)
    if was_used:
        left_beside(folder, images)
    for _ in range(2):
        assert removed(layout, tmp_path, with_machines=False) == []
        for gone in (folder, images, images.parent, layout.data_dir):
            assert not gone.exists()


def test_while_there_are_machines_nothing_is_removed_and_it_says_what_to_do(
    layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    made(layout)
    before = sorted(tmp_path.rglob("*"))
    for attempt in (uninstall.plan, lambda one: removed(one, tmp_path, with_machines=False)):
        with pytest.raises(failures.NeedsOperator) as refused:
            attempt(layout)
        said = str(refused.value)
        assert f"2 local machines ({NAMES[0]}, {NAMES[1]})" in said
        assert "enlist cloud machines delete NODE" in said
        assert "--remove-machines" in said
        assert sorted(tmp_path.rglob("*")) == before


def test_told_to_it_removes_machines_of_any_depth_with_all_else(
    layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    made(layout)
    folder, images = places_of(layout)
    deep_trees.make(folder / NAMES[1] / "upper")
    planned = uninstall.plan(layout, with_machines=True)
    assert [f"end and remove the local machine {name}" for name in NAMES] == planned[:2]
    for _ in range(2):
        assert removed(layout, tmp_path, with_machines=True) == []
        assert not folder.exists()
        assert not images.parent.exists()
        assert not layout.data_dir.exists()


def test_a_machine_that_cannot_be_ended_is_left_and_named_until_it_can(
    layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    made(layout)
    folder, images = places_of(layout)
    keeper = subprocess.Popen(["sleep", "600"])
    try:
        record = launching.identity(keeper.pid)
        (folder / NAMES[1] / launching.PID_FILE).write_text(record)
        said = " ".join(removed(layout, tmp_path, with_machines=True))
        assert f"The machine {NAMES[1]} runs on, held by process {keeper.pid}" in said
        assert f"1 local machine ({NAMES[1]})" in said
        assert (folder / NAMES[1] / "upper" / "etc").is_dir()
        assert images.is_dir()
    finally:
        keeper.send_signal(signal.SIGKILL)
        keeper.wait(10)
    assert removed(layout, tmp_path, with_machines=True) == []
    assert not folder.exists()
    assert not images.exists()


def test_the_option_goes_with_a_removal_alone() -> None:
    done = subprocess.run(
        ["sh", str(INSTALL_SH), "--role", "platform", "--remove-machines"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2
    assert "--remove-machines goes with --uninstall" in done.stderr
