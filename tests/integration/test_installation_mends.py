"""What `--fix` puts right in an installed tree: each damage that names it, alone and together."""

import dataclasses
import os
import pathlib
import shutil

import pytest

from installer import install
from installer.checkup import checkup as installation
from operator_cli import checkups
from tests.support import installed_damages as damages
from tests.support import installed_tree
from wire_protocol import problems

Tree = installed_tree.Tree
MENDABLE = [case for case, one in damages.DAMAGES.items() if one.command.endswith(" --fix")]


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    made = installed_tree.install(tmp_path / "m")
    made.join()
    return made


def fix(tree: Tree) -> list[tuple[str, str]]:
    """Looks and mends; gives what was done, each with its target."""
    checkup = tree.checkup()
    done = checkups.mend_all(checkup.mends(checkup.look()), tell=lambda _: None)
    assert [one.failed for one in done] == [None] * len(done)
    return [(one.mend.action, one.mend.target) for one in done]


@pytest.mark.parametrize("case", MENDABLE)
def test_what_names_fix_is_mended_by_it_once(tree: Tree, case: str) -> None:
    damages.DAMAGES[case].do(tree)
    assert fix(tree) != []
    assert tree.wrong() == {}
    assert fix(tree) == []


def test_much_at_once_is_mended_in_one_go(tree: Tree) -> None:
    for case in (
        "`current` is gone",
        "the command is gone",
        "everybody may write into the prefix",
        "an installation was killed while it unpacked",
        "the data directory is open",
    ):
        damages.DAMAGES[case].do(tree)
    fix(tree)
    fix(tree)  # what is below `current` shows only once it is back
    assert tree.wrong() == {}


NOT_MENDED = (
    "a file was changed",
    "the receipt is gone",
    "the account can log in",
    "the command is another program's",
)


@pytest.mark.parametrize("case", NOT_MENDED)
def test_what_needs_a_person_is_left_alone(tree: Tree, case: str) -> None:
    damages.DAMAGES[case].do(tree)
    before = tree.wrong()
    assert fix(tree) == []
    assert tree.wrong() == before


def test_where_nothing_is_wrong_nothing_is_done(tree: Tree) -> None:
    tree.run_systemd()
    assert fix(tree) == []


def test_a_current_that_is_a_folder_is_not_replaced(tree: Tree) -> None:
    damages.DAMAGES["`current` is a folder"].do(tree)
    assert fix(tree) == []
    assert tree.here.current.is_dir()


def test_of_two_whole_releases_the_receipts_is_chosen(tree: Tree) -> None:
    damages.another_release(tree)
    tree.here.current.unlink()
    fix(tree)
    assert tree.here.current.readlink().name == tree.release_id


def test_of_two_whole_releases_and_no_receipt_none_is_chosen(tree: Tree) -> None:
    damages.another_release(tree)
    tree.here.receipt.unlink()
    tree.here.current.unlink()
    assert ("link", str(tree.layout.current)) not in fix(tree)


def test_units_are_put_back_and_systemd_is_told(tree: Tree) -> None:
    tree.run_systemd()
    unit = tree.root / "etc/systemd/system/enlist-agent.service"
    unit.write_text("[Service]\nUser=root\n")
    assert fix(tree) == [
        ("write", "/etc/systemd/system/enlist-agent.service"),
        ("run", "systemctl daemon-reload"),
        ("run", "systemctl enable enlist-agent.service"),
    ]
    assert unit.stat().st_mode & 0o777 == 0o644
    assert [asked for asked in tree.asked if not asked.startswith("show")] == [
        "daemon-reload",
        "enable enlist-agent.service",
    ]


def test_a_unit_that_is_off_is_enabled_and_not_started(tree: Tree) -> None:
    off = {"UnitFileState": "disabled", "ActiveState": "inactive", "SubState": "dead"}
    tree.run_systemd(states={"enlist-agent.path": off})
    assert fix(tree) == [("run", "systemctl enable enlist-agent.path")]


def test_a_unit_that_somebody_masked_stays_masked(tree: Tree) -> None:
    unit = tree.root / "etc/systemd/system/enlist-agent.service"
    unit.unlink()
    unit.symlink_to("/dev/null")
    assert tree.wrong() == {}
    assert fix(tree) == []


def test_a_systemctl_that_fails_is_told_and_stops_nothing(tree: Tree) -> None:
    tree.run_systemd()
    tree.program("systemctl", "#!/bin/sh\necho 'Access denied' >&2\nexit 4\n")
    damages.DAMAGES["a unit is gone"].do(tree)
    damages.DAMAGES["everybody may write into the prefix"].do(tree)
    checkup = tree.checkup()
    done = checkups.mend_all(checkup.mends(checkup.look()), tell=lambda _: None)
    assert {one.failed for one in done} == {None, "Access denied"}
    assert tree.here.prefix.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_files_that_another_account_owns_are_taken_back(tree: Tree) -> None:
    os.chown(tree.site / "operator_cli" / "main.py", 4711, 4711)
    os.chown(tree.here.data_dir, 0, 0)
    assert "owners" in tree.wrong()
    fix(tree)
    assert tree.wrong() == {}
    assert (tree.site / "operator_cli/main.py").stat().st_uid == 0
    assert tree.here.data_dir.stat().st_uid == tree.account_uid


def test_who_does_not_own_the_installation_mends_nothing_of_it(tree: Tree) -> None:
    tree.here.prefix.chmod(0o777)
    around = dataclasses.replace(tree.around(), root_uid=os.geteuid() + 1)
    (checkup,) = installation.find(running=pathlib.Path("/usr"), environment={}, around=around)
    assert checkup.mends(checkup.look()) == []


def test_a_release_to_go_back_to_takes_the_place_of_one_that_is_gone(tree: Tree) -> None:
    newer = installed_tree.install(tree.root, version="1.3.0")
    shutil.rmtree(newer.release)
    fix(tree)
    assert tree.here.current.readlink().name == tree.release_id
    assert not tree.here.previous.is_symlink()


def test_the_way_back_stays_where_the_release_in_use_is_put_back(tree: Tree) -> None:
    newer = installed_tree.install(tree.root, version="1.3.0")
    tree.here.current.unlink()
    fix(tree)
    assert tree.here.current.readlink().name == newer.release_id
    assert tree.here.previous.readlink().name == tree.release_id


def test_while_an_installation_is_at_work_what_it_makes_is_left_alone(tree: Tree) -> None:
    damages.DAMAGES["an installation was killed while it unpacked"].do(tree)
    checkup = tree.checkup()
    with install.one_at_a_time(tree.here):
        assert tree.look()["under-way"].kind is problems.Kind.TRANSIENT
        (done,) = checkups.mend_all(checkup.mends(checkup.look()), tell=lambda _: None)
    assert "Another installation" in (done.failed or "")
    assert fix(tree) != []
