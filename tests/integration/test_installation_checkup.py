"""An installed tree, damaged one way at a time: each damage is named, classed, with its command."""

import dataclasses
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Mapping

import pytest

from installer import layout as layout_kit
from installer import switch
from tests.support import installed_tree
from wire_protocol import findings

Tree = installed_tree.Tree
NEEDS = "failed needs-operator"
WARNS = "warning needs-operator"
FIX = "sudo enlist doctor --fix"
AGAIN = "sudo sh /opt/enlist/worker/current/install.sh --role worker --from FOLDER"
AGAIN_WITHOUT = "sudo sh install.sh --role worker --from FOLDER"


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    made = installed_tree.install(tmp_path / "m")
    made.join()
    return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class Damage:
    """One thing done to the tree, and what must be told of it."""

    do: Callable[[Tree], object]
    told: Mapping[str, str]
    name: str
    says: str
    command: str


def write(path: str, content: str) -> Callable[[Tree], object]:
    return lambda tree: (tree.root / path).write_text(content)


def account(before: str, after: str, *, file: str = "passwd") -> Callable[[Tree], object]:
    def do(tree: Tree) -> None:
        path = tree.root / "etc" / file
        lines = [
            line.replace(before, after) if line.startswith("enlist-worker:") else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join([*(line for line in lines if line), ""]))

    return do


def in_group(group: str) -> Callable[[Tree], object]:
    def do(tree: Tree) -> None:
        with (tree.root / "etc/group").open("a") as file:
            file.write(f"{group}:x:990:someone,enlist-worker\n")

    return do


def another_release(tree: Tree) -> str:
    """A second release, whole and in nobody's use."""
    other = installed_tree.install(tree.root, version="1.3.0")
    switch.to_release(tree.here, tree.release_id)
    tree.here.previous.unlink()
    tree.write_receipt(release=tree.release_id)
    return other.release_id


def make_dangling(link: pathlib.Path) -> None:
    link.unlink()
    link.symlink_to("releases/0.9.0-000000000000")


DAMAGES: dict[str, Damage] = {
    "the receipt is gone": Damage(
        do=lambda tree: tree.here.receipt.unlink(),
        told={"receipt": NEEDS},
        name="receipt",
        says="neither an update nor the removal knows",
        command=AGAIN,
    ),
    "the receipt is no JSON": Damage(
        do=lambda tree: tree.here.receipt.write_text("{"),
        told={"receipt": NEEDS},
        name="receipt",
        says="is no receipt",
        command=AGAIN,
    ),
    "the receipt is of a newer format": Damage(
        do=lambda tree: tree.here.receipt.write_text('{"format": 2}'),
        told={"receipt": NEEDS},
        name="receipt",
        says="format",
        command=AGAIN,
    ),
    "the receipt is a pipe": Damage(
        do=lambda tree: (tree.here.receipt.unlink(), os.mkfifo(tree.here.receipt, 0o644)),
        told={"receipt": NEEDS, "owners": NEEDS},
        name="receipt",
        says="cannot be read",
        command=AGAIN,
    ),
    "the receipt is of another place": Damage(
        do=lambda tree: tree.write_receipt(prefix=pathlib.Path("/srv/enlist")),
        told={"receipt": NEEDS},
        name="receipt",
        says="was copied here",
        command=AGAIN,
    ),
    "the receipt names another release": Damage(
        do=lambda tree: tree.write_receipt(release="1.1.0-0123456789ab"),
        told={"receipt": WARNS},
        name="receipt",
        says="an update was cut off, or taken back",
        command=AGAIN,
    ),
    "`current` is gone": Damage(
        do=lambda tree: tree.here.current.unlink(),
        told={"release": NEEDS},
        name="release",
        says="is here and whole",
        command=FIX,
    ),
    "`current` leads nowhere": Damage(
        do=lambda tree: make_dangling(tree.here.current),
        told={"release": NEEDS, "receipt": WARNS},
        name="release",
        says="not there or not whole",
        command=FIX,
    ),
    "`current` leads out of the installation": Damage(
        do=lambda tree: (tree.here.current.unlink(), tree.here.current.symlink_to("/usr")),
        told={"release": NEEDS},
        name="release",
        says="does not lead to a release of this installation",
        command=FIX,
    ),
    "`current` is a folder": Damage(
        do=lambda tree: (tree.here.current.unlink(), tree.here.current.mkdir()),
        told={"release": NEEDS},
        name="release",
        says="does not lead to a release",
        command=AGAIN_WITHOUT,
    ),
    "the release says another thing than its name": Damage(
        do=lambda tree: (tree.release / "release.json").write_text("{}"),
        told={"release": NEEDS},
        name="release",
        says="not whole",
        command=AGAIN,
    ),
    "the list of its files is gone": Damage(
        do=lambda tree: (tree.release / "files.json").unlink(),
        told={"release": NEEDS},
        name="release",
        says="not whole",
        command=AGAIN,
    ),
    "`previous` leads nowhere": Damage(
        do=lambda tree: tree.here.previous.symlink_to("releases/0.9.0-000000000000"),
        told={"previous": WARNS},
        name="previous",
        says="cannot go back",
        command=AGAIN,
    ),
    "an installation was killed while it unpacked": Damage(
        do=lambda tree: (tree.here.releases / ".making-1.3.0-0123456789ab").mkdir(),
        told={"left-over": WARNS},
        name="left-over",
        says=".making-1.3.0-0123456789ab",
        command=FIX,
    ),
    "a release is in nobody's use": Damage(
        do=another_release,
        told={"left-over": WARNS},
        name="left-over",
        says="1.3.0-",
        command=AGAIN,
    ),
    "a file was changed": Damage(
        do=lambda tree: (tree.site / "operator_cli/main.py").write_text("import os\n"),
        told={"hashes": NEEDS},
        name="hashes",
        says="1 changed (lib/",
        command=AGAIN,
    ),
    "a file is gone": Damage(
        do=lambda tree: (tree.site / "third_party/__init__.py").unlink(),
        told={"hashes": NEEDS},
        name="hashes",
        says="gone (",
        command=AGAIN,
    ),
    "a file was added": Damage(
        do=lambda tree: (tree.site / "sitecustomize.py").write_text("import os\n"),
        told={"hashes": NEEDS},
        name="hashes",
        says="1 not of it (lib/",
        command=AGAIN,
    ),
    "a compiled file of no source was added": Damage(
        do=lambda tree: (
            (tree.site / "__pycache__").mkdir()
            or (tree.site / "__pycache__/stray.cpython-311.pyc").write_bytes(b"")
        ),
        told={"hashes": NEEDS},
        name="hashes",
        says="not of it",
        command=AGAIN,
    ),
    "a file was made a link to the same content": Damage(
        do=lambda tree: (
            shutil.move(tree.site / "operator_cli/main.py", tree.root / "main.py"),
            (tree.site / "operator_cli/main.py").symlink_to(tree.root / "main.py"),
        ),
        told={"hashes": NEEDS, "owners": NEEDS},
        name="hashes",
        says="1 changed",
        command=AGAIN,
    ),
    "the command is gone": Damage(
        do=lambda tree: tree.here.link.unlink(),
        told={"command": NEEDS},
        name="command",
        says="nobody finds the command",
        command=FIX,
    ),
    "the command is another program's": Damage(
        do=lambda tree: (tree.here.link.unlink(), tree.here.link.write_text("#!/bin/sh\n")),
        told={"command": NEEDS},
        name="command",
        says="another program's",
        command="ls -l /usr/local/bin/enlist",
    ),
    "the command leads elsewhere": Damage(
        do=lambda tree: (
            tree.here.link.unlink(),
            tree.here.link.symlink_to("/srv/other/worker/current/bin/enlist"),
        ),
        told={"command": WARNS},
        name="command",
        says="not to this installation",
        command="ls -l /usr/local/bin/enlist",
    ),
    "the account is gone": Damage(
        do=account("enlist-worker", ""),
        told={"account.enlist-worker": NEEDS},
        name="account.enlist-worker",
        says="is gone",
        command=AGAIN,
    ),
    "the account can log in": Damage(
        do=account("/usr/sbin/nologin", "/bin/bash"),
        told={"account.enlist-worker": NEEDS},
        name="account.enlist-worker",
        says="can log in (/bin/bash)",
        command="sudo usermod --shell /usr/sbin/nologin enlist-worker",
    ),
    "the account's own group is another": Damage(
        do=lambda tree: (tree.root / "etc/group").write_text("users:x:4711:\n"),
        told={"account.enlist-worker": NEEDS},
        name="account.enlist-worker",
        says="own group is users",
        command="sudo usermod --gid enlist-worker enlist-worker",
    ),
    "the account is in docker's group": Damage(
        do=in_group("docker"),
        told={"account.enlist-worker": NEEDS},
        name="account.enlist-worker",
        says="is in docker",
        command="sudo gpasswd --delete enlist-worker docker",
    ),
    "the account is in somebody's group": Damage(
        do=in_group("music"),
        told={"account.enlist-worker": WARNS},
        name="account.enlist-worker",
        says="also in music",
        command="sudo gpasswd --delete enlist-worker music",
    ),
    "everybody may write into the prefix": Damage(
        do=lambda tree: tree.here.prefix.chmod(0o777),
        told={"owners": NEEDS},
        name="owners",
        says="has mode 0777, and must have 0755",
        command=FIX,
    ),
    "everybody may write a file that root runs": Damage(
        do=lambda tree: (tree.site / "operator_cli/main.py").chmod(0o666),
        told={"owners": NEEDS},
        name="owners",
        says="has mode 0666",
        command=FIX,
    ),
    "the data directory is open": Damage(
        do=lambda tree: tree.here.data_dir.chmod(0o755),
        told={"owners": NEEDS},
        name="owners",
        says="must have 0700",
        command=FIX,
    ),
    "the root helper's state can be read": Damage(
        do=lambda tree: (
            (tree.root / "var/lib/enlist/helper").mkdir(mode=0o700),
            (tree.root / "var/lib/enlist/helper/trust.json").write_text("{}"),
        ),
        told={"owners": NEEDS},
        name="owners",
        says="must have 0600",
        command=FIX,
    ),
    "a unit was changed": Damage(
        do=write("etc/systemd/system/enlist-agent.service", "[Service]\nUser=root\n"),
        told={"units": NEEDS},
        name="units",
        says="enlist-agent.service not as this release has it",
        command=FIX,
    ),
    "a unit is gone": Damage(
        do=lambda tree: (tree.root / "etc/systemd/system/enlist-helper.socket").unlink(),
        told={"units": NEEDS},
        name="units",
        says="enlist-helper.socket gone",
        command=FIX,
    ),
    "a unit of an earlier release is still there": Damage(
        do=lambda tree: (
            write("etc/systemd/system/enlist-old.service", "")(tree),
            tree.write_receipt(units=("enlist-old.service",)),
        ),
        told={"units": WARNS},
        name="units",
        says="came with an earlier release",
        command=AGAIN,
    ),
    "the machine has not joined": Damage(
        do=lambda tree: (tree.here.data_dir / "agent.json").unlink(),
        told={"joined": NEEDS},
        name="joined",
        says="not joined to a Platform yet",
        command="sudo enlist worker join -",
    ),
    "a join is not finished": Damage(
        do=lambda tree: (tree.here.data_dir / "agent.json").rename(
            tree.here.data_dir / "pending-join.json"
        ),
        told={"joined": "failed transient"},
        name="joined",
        says="goes on with it by itself",
        command="journalctl -u enlist-join.service",
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damage_is_named_with_its_class_and_its_command(tree: Tree, case: str) -> None:
    damage = DAMAGES[case]
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
    assert set(made.wrong()) <= {"joined"}


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
        assert tree.wrong()["python"] == NEEDS
        assert "python3.11 is gone: nothing of it starts" in found.detail
        assert "unpacks it for Python 3.13" in found.detail
        assert AGAIN in (found.command or "")

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
