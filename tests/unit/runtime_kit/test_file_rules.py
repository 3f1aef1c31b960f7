"""Owners and modes: what is wrong is named, what is mended stays inside the folder."""

import os
import pathlib

import pytest

from runtime_kit import file_rules, mends

RULES = (
    file_rules.folder("."),
    file_rules.folder("inner"),
    file_rules.file("inner/secret"),
    file_rules.file("plain"),
)


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    tmp_path.chmod(0o700)
    (tmp_path / "inner").mkdir(mode=0o700)
    for name in ("inner/secret", "plain"):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0o600)
    return tmp_path


def _faults(root: pathlib.Path) -> list[file_rules.Fault]:
    return file_rules.examine(root, RULES, uid=os.geteuid())


def test_what_is_right_or_not_there_is_no_fault(root: pathlib.Path) -> None:
    (root / "plain").unlink()
    assert _faults(root) == []


def test_a_lax_mode_is_named_and_mended(root: pathlib.Path) -> None:
    (root / "inner/secret").chmod(0o644)
    (root / "inner").chmod(0o755)
    found = _faults(root)
    assert [(one.path.name, one.exposed) for one in found] == [("inner", False), ("secret", True)]
    for one in found:
        assert one.mend is not None
        one.mend.apply()
    assert _faults(root) == []
    assert (root / "inner/secret").stat().st_mode & 0o777 == 0o600


def test_a_file_that_its_owner_cannot_read_is_a_fault(root: pathlib.Path) -> None:
    (root / "plain").chmod(0o400)
    assert [one.path.name for one in _faults(root)] == ["plain"]


def test_a_link_in_a_files_place_is_named_and_never_followed(root: pathlib.Path) -> None:
    outside = root.with_name(f"{root.name}-outside")
    outside.write_text("x")
    outside.chmod(0o644)
    (root / "plain").unlink()
    (root / "plain").symlink_to(outside)
    (found,) = _faults(root)
    assert "symbolic link" in found.text
    assert found.mend is None
    assert outside.stat().st_mode & 0o777 == 0o644


def test_a_link_put_in_between_look_and_mend_leads_nowhere(root: pathlib.Path) -> None:
    outside = root.with_name(f"{root.name}-outside")
    outside.mkdir()
    (outside / "secret").write_text("x")
    (outside / "secret").chmod(0o644)
    (root / "inner/secret").chmod(0o644)
    (found,) = _faults(root)
    (root / "inner").rename(root / "moved")
    (root / "inner").symlink_to(outside)
    assert found.mend is not None
    with pytest.raises(mends.CannotMend):
        found.mend.apply()
    assert (outside / "secret").stat().st_mode & 0o777 == 0o644


def test_a_file_with_another_name_elsewhere_is_left_alone(root: pathlib.Path) -> None:
    (root / "plain").chmod(0o644)
    (found,) = _faults(root)
    os.link(root / "plain", root.with_name(f"{root.name}-second"))
    assert found.mend is not None
    with pytest.raises(mends.CannotMend, match="one name"):
        found.mend.apply()


def test_a_pipe_in_a_files_place_keeps_nobody_waiting(root: pathlib.Path) -> None:
    (root / "plain").unlink()
    os.mkfifo(root / "plain", 0o644)
    (found,) = _faults(root)
    assert "a pipe" in found.text


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_file_of_another_account_is_given_back_to_the_folders(root: pathlib.Path) -> None:
    os.chown(root / "plain", 4711, -1)
    (found,) = _faults(root)
    assert "uid 4711" in found.text
    assert found.mend is not None
    found.mend.apply()
    assert (root / "plain").stat().st_uid == os.geteuid()


def test_a_listing_names_every_entry_and_opens_none(root: pathlib.Path) -> None:
    (root / "inner/secret").chmod(0o000)
    listed = file_rules.listing(root)
    assert [line.rpartition("/")[2] for line in listed.splitlines()] == ["inner", "plain", "secret"]
