"""What is checked before the token leaves: whose folder it is, and that it can be written."""

import pathlib

import pytest

from worker_agent.enrollment import preflight
from worker_agent.settings import failures, paths


def put(folder: pathlib.Path, *names: str) -> paths.Paths:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return paths.Paths(folder=folder)


@pytest.mark.parametrize(
    "left",
    [
        [".tmp-space-probe"],
        [".tmp-space-probe-0123abcd"],
        [".tmp-trust.json-0123abcd", ".tmp-space-probe-0123abcd"],
        ["lost+found"],
    ],
)
def test_what_an_interrupted_join_left_is_no_strangers(
    tmp_path: pathlib.Path, left: list[str]
) -> None:
    where = put(tmp_path / "worker", *left)
    preflight.look_for_room(where)
    preflight.check_room(where)


def test_the_probe_and_what_was_left_of_one_are_gone_afterwards(tmp_path: pathlib.Path) -> None:
    where = put(tmp_path / "worker", ".tmp-space-probe", ".tmp-space-probe-0123abcd")
    preflight.check_room(where)
    assert list(where.folder.iterdir()) == []


@pytest.mark.parametrize(
    "others", [["letter.txt"], ["letter.txt", "lost+found"], [".tmp-letter.txt"], [".bashrc"]]
)
def test_a_folder_with_other_peoples_files_is_left_alone(
    tmp_path: pathlib.Path, others: list[str]
) -> None:
    where = put(tmp_path / "home", *others)
    where.folder.chmod(0o755)
    with pytest.raises(failures.Misuse, match="no worker's data directory"):
        preflight.check_room(where)
    assert sorted(path.name for path in where.folder.iterdir()) == sorted(others)
    assert where.folder.stat().st_mode & 0o777 == 0o755
