"""One thing done to an installed tree at a time, and what must be told of it.

A key is a sentence; `told` is all that must be found wrong then, and nothing else.
"""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping

from installer import switch
from tests.support import installed_tree

Tree = installed_tree.Tree
NEEDS = "failed needs-operator"
WARNS = "warning needs-operator"
FIX = "sudo enlist doctor --fix"
# Where `enlist` does not start, by the release itself.
FIX_BY_RELEASE = "bin/enlist doctor --fix"
AGAIN = "sudo sh /opt/enlist/worker/current/install.sh --role worker --from FOLDER"
AGAIN_WITHOUT = "sudo sh install.sh --role worker --from FOLDER"


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


def steps(*each: Callable[[Tree], object]) -> Callable[[Tree], object]:
    """Several things done in turn."""

    def do(tree: Tree) -> None:
        for one in each:
            one(tree)

    return do


def link_instead(path: Callable[[Tree], pathlib.Path], target: str) -> Callable[[Tree], object]:
    """A link in the place of what is there."""

    def do(tree: Tree) -> None:
        path(tree).unlink()
        path(tree).symlink_to(target)

    return do


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
        command=f"sudo rm /opt/enlist/worker/receipt.json; {AGAIN}",
    ),
    "the receipt is of a newer format": Damage(
        do=lambda tree: tree.here.receipt.write_text('{"format": 2}'),
        told={"receipt": NEEDS},
        name="receipt",
        says="format",
        command=AGAIN,
    ),
    "the receipt is a pipe": Damage(
        do=steps(
            lambda tree: tree.here.receipt.unlink(),
            lambda tree: os.mkfifo(tree.here.receipt, 0o644),
        ),
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
        command=FIX_BY_RELEASE,
    ),
    "`current` leads nowhere": Damage(
        do=lambda tree: make_dangling(tree.here.current),
        told={"release": NEEDS, "receipt": WARNS},
        name="release",
        says="not there or not whole",
        command=FIX_BY_RELEASE,
    ),
    "`current` leads out of the installation": Damage(
        do=link_instead(lambda tree: tree.here.current, "/usr"),
        told={"release": NEEDS},
        name="release",
        says="does not lead to a release of this installation",
        command=FIX_BY_RELEASE,
    ),
    "`current` is a folder": Damage(
        do=steps(lambda tree: tree.here.current.unlink(), lambda tree: tree.here.current.mkdir()),
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
    "an installation was killed while it copied its own code": Damage(
        do=lambda tree: (tree.here.root / ".making-uninstaller").mkdir(),
        told={"left-over": WARNS},
        name="left-over",
        says=".making-uninstaller",
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
        do=steps(
            lambda tree: (tree.site / "__pycache__").mkdir(),
            lambda tree: (tree.site / "__pycache__/stray.cpython-311.pyc").write_bytes(b""),
        ),
        told={"hashes": NEEDS},
        name="hashes",
        says="not of it",
        command=AGAIN,
    ),
    "a file was made a pipe": Damage(
        do=steps(
            lambda tree: (tree.site / "operator_cli/main.py").unlink(),
            lambda tree: os.mkfifo(tree.site / "operator_cli/main.py", 0o644),
        ),
        told={"hashes": NEEDS, "owners": NEEDS},
        name="hashes",
        says="1 changed",
        command=AGAIN,
    ),
    "a file was made a link to the same content": Damage(
        do=steps(
            lambda tree: shutil.move(tree.site / "operator_cli/main.py", tree.root / "main.py"),
            lambda tree: (tree.site / "operator_cli/main.py").symlink_to(tree.root / "main.py"),
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
        command=FIX_BY_RELEASE,
    ),
    "the command is another program's": Damage(
        do=steps(
            lambda tree: tree.here.link.unlink(),
            lambda tree: tree.here.link.write_text("#!/bin/sh\n"),
        ),
        told={"command": WARNS},
        name="command",
        says="another program's",
        command="ls -l /usr/local/bin/enlist",
    ),
    "the command leads elsewhere": Damage(
        do=link_instead(lambda tree: tree.here.link, "/srv/other/worker/current/bin/enlist"),
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
        do=account("enlist-worker:", "users:", file="group"),
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
    "the account is in the Platform's group": Damage(
        do=in_group("enlist-platform"),
        told={"account.enlist-worker": NEEDS},
        name="account.enlist-worker",
        says="is in enlist-platform",
        command="sudo gpasswd --delete enlist-worker enlist-platform",
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
    "everybody may write into the folder above the prefix": Damage(
        do=lambda tree: (tree.root / "opt").chmod(0o777),
        told={"owners": NEEDS},
        name="owners",
        says="others than root can put something else in the place",
        command="sudo chown root /opt; sudo chmod go-w /opt",
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
        do=steps(
            lambda tree: (tree.root / "var/lib/enlist/helper").mkdir(mode=0o700),
            lambda tree: (tree.root / "var/lib/enlist/helper/trust.json").write_text("{}"),
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
        do=steps(
            write("etc/systemd/system/enlist-old.service", ""),
            lambda tree: tree.write_receipt(units=("enlist-old.service",)),
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
