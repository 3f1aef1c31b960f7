"""Which folder a command typed as root is for, and that no account of the machine holds root up."""

import dataclasses
import os
import pathlib
import pwd
import sys

import pytest

from installer import layout as layout_kit
from operator_cli import installed, own_folder
from wire_protocol import problems

NEVER_ENDS = ["http.server", "0", "--bind", "127.0.0.1"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")


@pytest.fixture
def data_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "enlist/worker"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def here(data_dir: pathlib.Path) -> installed.Installed:
    layout = layout_kit.system(layout_kit.Role.WORKER, data_dir=data_dir)
    return installed.Installed(
        layout=dataclasses.replace(layout, account="nobody"), account=pwd.getpwnam("nobody")
    )


def test_the_workers_folder_is_known_by_whatever_name_it_is_called(data_dir: pathlib.Path) -> None:
    link = data_dir.parent.parent / "link"
    link.symlink_to(data_dir)
    for name in (data_dir, data_dir / "../../enlist/worker", link):
        assert own_folder.is_named(name, data_dir)


def test_a_folder_within_the_workers_is_refused(data_dir: pathlib.Path) -> None:
    (data_dir / "out").symlink_to("/")
    for name in ("new", "out/var", "../worker/new/below"):
        with pytest.raises(own_folder.CannotHandOver, match="worker's data directory"):
            own_folder.is_named(data_dir / name, data_dir)


@as_root
def test_as_root_a_data_directory_of_another_account_is_refused(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert not own_folder.is_named(other, data_dir)
    assert not own_folder.is_named(other / "new", data_dir)
    os.chown(other, 65_534, 65_534)
    with pytest.raises(own_folder.CannotHandOver, match="uid 65534"):
        own_folder.is_named(other, data_dir)


def test_a_worker_whose_folder_is_gone_is_still_known_by_its_path(tmp_path: pathlib.Path) -> None:
    gone = tmp_path / "gone"
    assert own_folder.is_named(tmp_path / "x/../gone", gone)
    assert not own_folder.is_named(tmp_path / "other", gone)


@as_root
@pytest.mark.usefixtures("everybodys")
def test_a_command_that_the_account_never_lets_end_holds_root_up_for_a_bounded_time(
    here: installed.Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    code = installed._run(here, NEVER_ENDS, given=None, seconds=0.3)
    assert code == problems.Exit.TEMPORARY
    assert "did not end within" in capsys.readouterr().err


@as_root
@pytest.mark.usefixtures("everybodys")
def test_what_the_account_hands_over_is_waited_for_a_bounded_time(
    here: installed.Installed,
) -> None:
    with pytest.raises(installed.TookTooLong):
        list(installed.take_from(here, NEVER_ENDS, most=100, seconds=0.3))


@pytest.fixture
def everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that every account may run; the checkout's may stand in root's own folder."""
    python = pathlib.Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("needs the distribution's Python")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(installed, "_checkout", lambda: "/")
