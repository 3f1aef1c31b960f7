"""An installed tree, damaged one way at a time: each damage is named, classed, with its command."""

import json
import os
import pathlib
import shutil
import sys

import pytest

from installer import layout as layout_kit
from tests.support import installed_damages, installed_tree
from wire_protocol import findings

Tree = installed_tree.Tree


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    made = installed_tree.install(tmp_path / "m")
    made.join()
    return made


@pytest.mark.parametrize("case", installed_damages.DAMAGES)
def test_a_damage_is_named_with_its_class_and_its_command(tree: Tree, case: str) -> None:
    damage = installed_damages.DAMAGES[case]
    damage.do(tree)
    assert tree.wrong() == damage.told
    told = tree.look()[damage.name]
    assert damage.says in told.detail
    assert damage.command in (told.command or "")


def test_an_installation_as_it_was_made_has_nothing_wrong(tree: Tree) -> None:
    found = tree.look()
    assert tree.wrong() == {}
    assert list(found) == [
        "receipt", "release", "previous", "left-over", "python", "hashes", "command",
        "account.enlist-worker", "owners", "units", "unit", "root-helper", "joined", "firewall",
    ]  # fmt: skip
    assert "systemd does not run" in found["unit"].detail


@pytest.mark.parametrize("role", layout_kit.Role)
def test_both_roles_are_looked_at_alike(tmp_path: pathlib.Path, role: layout_kit.Role) -> None:
    made = installed_tree.install(tmp_path / "m", role)
    assert set(made.wrong()) == ({"joined"} if role is layout_kit.Role.WORKER else set())


def test_on_a_machine_that_is_both_each_role_is_well(tmp_path: pathlib.Path) -> None:
    platform = installed_tree.install(tmp_path / "m", layout_kit.Role.PLATFORM)
    worker = installed_tree.install(tmp_path / "m")
    worker.join()
    assert platform.wrong() == {}
    assert worker.wrong() == {}
    assert "/opt/enlist/platform/current/bin/enlist" in worker.look()["command"].detail


def test_units_that_a_removal_left_behind_are_found(tree: Tree) -> None:
    shutil.rmtree(tree.here.prefix)
    found = tree.look()["receipt"]
    assert tree.wrong()["receipt"] == installed_damages.NEEDS
    assert "a removal was cut off" in found.detail
    assert "--uninstall" in (found.command or "")


def test_a_link_of_the_accounts_leads_root_to_no_other_file(tree: Tree) -> None:
    elsewhere = tree.root / "elsewhere.json"
    elsewhere.write_text('{"node_id": "elsewhere-word"}')
    (tree.here.data_dir / "agent.json").unlink()
    (tree.here.data_dir / "agent.json").symlink_to(elsewhere)
    found = tree.look()["joined"]
    assert found.status is findings.Status.SKIPPED
    assert "elsewhere-word" not in found.detail


def test_looking_changes_no_file(tree: Tree) -> None:
    tree.here.data_dir.chmod(0o755)
    before = {path: path.lstat() for path in tree.root.rglob("*")}
    tree.look()
    after = {path: path.lstat() for path in tree.root.rglob("*")}
    kept = ("st_mode", "st_uid", "st_mtime_ns", "st_size", "st_ino")
    assert {path: [getattr(info, name) for name in kept] for path, info in before.items()} == {
        path: [getattr(info, name) for name in kept] for path, info in after.items()
    }


class TestPython:
    """The interpreter under a release goes away with an upgrade of the distribution."""

    def point_at(self, tree: Tree, program: pathlib.Path) -> None:
        link = tree.release / "bin" / "python"
        link.unlink()
        link.symlink_to(program)

    def look(self, tree: Tree) -> findings.Finding:
        return tree.look()["python"]

    def test_one_that_is_gone_is_named_and_so_is_the_one_that_came(self, tree: Tree) -> None:
        self.point_at(tree, tree.root / "usr/bin/python3.11")
        tree.program("python3.13", "#!/bin/sh\n")
        found = self.look(tree)
        assert tree.wrong()["python"] == installed_damages.NEEDS
        assert "python3.11 is gone: nothing of it starts" in found.detail
        assert "unpacks it for Python 3.13" in found.detail
        assert installed_damages.AGAIN in (found.command or "")

    def test_without_any_other_it_is_said_which_to_install(self, tree: Tree) -> None:
        self.point_at(tree, tree.root / "usr/bin/python3.11")
        assert "install one of them first" in self.look(tree).detail

    def test_another_version_under_the_same_name_is_told(self, tree: Tree) -> None:
        tree.program("python3", "#!/bin/sh\necho 3.14\n")
        self.point_at(tree, tree.programs / "python3")
        assert "is Python 3.14" in self.look(tree).detail

    def test_one_that_does_not_start_is_told(self, tree: Tree) -> None:
        tree.program("python3", "#!/bin/sh\nexit 127\n")
        self.point_at(tree, tree.programs / "python3")
        assert "does not start" in self.look(tree).detail

    def test_one_that_hangs_costs_no_more_than_its_time(self, tree: Tree) -> None:
        tree.program("python3", "#!/bin/sh\nexec sleep 600\n")
        self.point_at(tree, tree.programs / "python3")
        assert "gave no answer within 0.2 s" in tree.look(seconds=0.2)["python"].detail

    def test_one_that_everybody_may_write_is_not_run(self, tree: Tree) -> None:
        tree.program("python3", f"#!/bin/sh\ntouch {tree.root}/ran\necho 3.11\n")
        (tree.programs / "python3").chmod(0o777)
        self.point_at(tree, tree.programs / "python3")
        assert self.look(tree).status is findings.Status.SKIPPED
        assert not (tree.root / "ran").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
    def test_root_runs_no_interpreter_that_another_account_may_change(self, tree: Tree) -> None:
        tree.program("python3", f"#!/bin/sh\ntouch {tree.root}/ran\necho 3.11\n")
        os.chown(tree.programs / "python3", 4711, -1)
        self.point_at(tree, tree.programs / "python3")
        assert self.look(tree).status is findings.Status.SKIPPED
        assert not (tree.root / "ran").exists()


def test_the_same_is_told_by_any_python_without_a_single_package(
    tree: Tree, tmp_path: pathlib.Path
) -> None:
    del tree
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from installer.checkup import __main__ as m; sys.exit(m.main(['-o', 'json']))"
    )
    done = installed_tree.run([sys.executable, "-I", "-S", "-c", script,
                               str(installed_tree.REPOSITORY)], home=tmp_path)  # fmt: skip
    assert done.returncode in (0, 6), done.stderr
    assert set(json.loads(done.stdout)) == {"status", "version", "checks"}
