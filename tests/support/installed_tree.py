"""A machine's tree with Enlist installed in it, laid out by the installer's own code.

The root is a folder of the test's. What systemd would answer is said by a program that prints what
the test wrote down and keeps what it was asked; everything else is real files.
"""

import dataclasses
import hashlib
import io
import json
import lzma
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping, Sequence

from installer import layout as layout_kit
from installer import receipt as receipt_kit
from installer import release as release_kit
from installer import switch, tree, units
from installer.checkup import around as around_kit
from installer.checkup import checkup
from wire_protocol import findings, helper_protocol

REPOSITORY = pathlib.Path(__file__).parents[2]
_CODE = {
    "operator_cli/__init__.py": b'"""Commands."""\n',
    "operator_cli/main.py": b'"""The command."""\n\n\ndef main() -> int:\n    return 0\n',
    "wire_protocol/__init__.py": b'"""The wire."""\n',
}
_WHEEL = "third_party-1.0-py3-none-any.whl"
_SYSTEMCTL = """#!/bin/sh
echo "$*" >> {log}
case "$1" in
show) cat {answers} ;;
esac
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
    """One role, installed below `root`."""

    root: pathlib.Path
    layout: layout_kit.Layout  # as the machine names its places
    here: layout_kit.Layout  # where they lie
    release_id: str
    account_uid: int

    @property
    def release(self) -> pathlib.Path:
        return self.here.release(self.release_id)

    @property
    def site(self) -> pathlib.Path:
        (found,) = self.release.glob("lib/python3.*/site-packages")
        return found

    @property
    def programs(self) -> pathlib.Path:
        return self.root / "programs"

    @property
    def asked(self) -> list[str]:
        """What systemctl was asked, in order."""
        log = self.programs / "systemctl.log"
        return log.read_text().splitlines() if log.exists() else []

    def around(self, *, seconds: float = 10.0) -> around_kit.Around:
        return around_kit.Around(
            root=self.root,
            programs=str(self.programs),
            root_uid=os.geteuid(),
            program_seconds=seconds,
        )

    def checkup(self, *, seconds: float = 10.0) -> checkup.Checkup:
        found = checkup.find(
            running=pathlib.Path("/usr"), environment={}, around=self.around(seconds=seconds)
        )
        return next(one for one in found if one.role == self.layout.role)

    def look(self, *, seconds: float = 10.0) -> dict[str, findings.Finding]:
        """The findings by name."""
        return {one.name: one for one in self.checkup(seconds=seconds).look()}

    def wrong(self) -> dict[str, str]:
        """What does not stand well: how it stands and, of what failed, its class."""
        return {
            name: one.status.value if one.kind is None else f"{one.status.value} {one.kind.value}"
            for name, one in self.look().items()
            if one.status in (findings.Status.WARNING, findings.Status.FAILED)
        }

    def run_systemd(self, *, states: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """From now on systemd runs this machine; every unit is well but for what is given."""
        (self.root / "run/systemd/system").mkdir(parents=True, exist_ok=True)
        blocks = []
        for unit in units.of_release(self.here, self.release_id):
            properties = {
                "Id": unit.name,
                "LoadState": "loaded",
                "ActiveState": "active",
                "SubState": "running",
                "UnitFileState": "enabled" if unit.enabled else "static",
                "Result": "success",
                "ExecMainStatus": "0",
                "NRestarts": "0",
                "NeedDaemonReload": "no",
                **(states or {}).get(unit.name, {}),
            }
            blocks.append("".join(f"{name}={value}\n" for name, value in properties.items()))
        (self.programs / "systemctl.show").write_text("\n".join(blocks))
        self.program(
            "systemctl",
            _SYSTEMCTL.format(
                log=self.programs / "systemctl.log", answers=self.programs / "systemctl.show"
            ),
        )

    def listen_as_root_helper(self, *, mode: int = 0o660) -> None:
        """The socket of the root helper, as systemd makes it."""
        path = self.root / helper_protocol.SOCKET.lstrip("/")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
        path.chmod(mode)
        os.chown(path, -1, 4711 if os.geteuid() == 0 else os.getegid())

    def program(self, name: str, script: str) -> None:
        """Puts a program into the machine's search path."""
        path = self.programs / name
        path.write_text(script)
        path.chmod(0o755)

    def join(self, **fields: object) -> None:
        """The machine has joined."""
        content = {"node_id": "web-1", "connectivity": "dial-out", "port": 8443, **fields}
        path = self.here.data_dir / "agent.json"
        path.write_text(json.dumps(content))
        os.chown(path, self.account_uid, -1)

    def write_receipt(self, **changes: object) -> None:
        """The receipt as the installer would leave it, but for what is given."""
        found = receipt_kit.find(self.here.receipt) or _receipt(self.layout, self.release_id)
        changed = dataclasses.replace(found, **changes)  # type: ignore[arg-type]
        receipt_kit.write(changed, layout=self.here)


def install(
    root: pathlib.Path,
    role: layout_kit.Role = layout_kit.Role.WORKER,
    *,
    version: str = "1.2.3",
) -> Tree:
    """Lays a release out, puts units, accounts, link and receipt in their place."""
    layout = layout_kit.system(role)
    here = _below(layout, root)
    for folder in (here.root, here.data_dir, here.link.parent, root / "programs"):
        folder.mkdir(parents=True, exist_ok=True)
    release_id = _lay_out(here, version=version)
    switch.to_release(here, release_id)
    uid = 4711 if os.geteuid() == 0 else os.geteuid()
    _accounts(root, layout, uid=uid)
    _rights(here, root, uid=uid)
    _units(here, layout, release_id)
    if not here.link.is_symlink():
        here.link.symlink_to(layout.command)
    here.release_key.write_text("-----BEGIN PUBLIC KEY-----\n")
    here.release_key.chmod(0o644)
    receipt_kit.write(_receipt(layout, release_id), layout=here)
    return Tree(root=root, layout=layout, here=here, release_id=release_id, account_uid=uid)


def install_for_a_user(home: pathlib.Path) -> Tree:
    """The same by a plain user below a folder of his own: neither account nor unit."""
    layout = layout_kit.rootless(
        layout_kit.Role.WORKER, prefix=home / "enlist", environment={"HOME": str(home)}
    )
    for folder in (layout.root, layout.data_dir, layout.link.parent):
        folder.mkdir(parents=True)
    for folder in (layout.prefix, layout.root):
        folder.chmod(0o755)
    layout.data_dir.chmod(0o700)
    release_id = _lay_out(layout, version="1.2.3")
    switch.to_release(layout, release_id)
    layout.link.symlink_to(layout.command)
    receipt_kit.write(_receipt(layout, release_id), layout=layout)
    return Tree(
        root=pathlib.Path("/"),
        layout=layout,
        here=layout,
        release_id=release_id,
        account_uid=os.geteuid(),
    )


def _below(layout: layout_kit.Layout, root: pathlib.Path) -> layout_kit.Layout:
    def below(path: pathlib.Path) -> pathlib.Path:
        return root / path.relative_to("/")

    return dataclasses.replace(
        layout,
        prefix=below(layout.prefix),
        data_dir=below(layout.data_dir),
        link=below(layout.link),
        units=None if layout.units is None else below(layout.units),
        helper=None if layout.helper is None else below(layout.helper),
    )


def _receipt(layout: layout_kit.Layout, release_id: str) -> receipt_kit.Receipt:
    folder = REPOSITORY / "systemd" / layout.role
    return receipt_kit.Receipt(
        role=layout.role,
        version=release_id.partition("-")[0],
        release=release_id,
        prefix=layout.prefix,
        data_dir=layout.data_dir,
        account=layout.account,
        link=layout.link,
        installed_at="2026-01-31T12:00:00Z",
        updated_at="2026-01-31T12:00:00Z",
        accounts=layout.accounts,
        units=tuple(sorted(path.name for path in folder.iterdir())) if layout.units else (),
    )


def _lay_out(here: layout_kit.Layout, *, version: str) -> str:
    python = tree.this_python()
    payload = _payload(here.role, python=python.version)
    release = release_kit.Release(
        role=here.role.value,
        version=version,
        arch="x86_64",
        pythons=release_kit.PYTHONS,
        commit="0" * 40,
        made_at="2026-01-31T12:00:00Z",
        payload_sha256="0" * 64,
    )
    return tree.lay_out(
        here,
        release=release,
        install_sh=b"#!/bin/sh\n",
        payload=io.BytesIO(payload),
        python=python,
    )


def _payload(role: layout_kit.Role, *, python: str) -> bytes:
    members = {f"code/{name}": content for name, content in _CODE.items()}
    wheel = _wheel()
    sums = release_kit.sums([(_WHEEL, hashlib.sha256(wheel).hexdigest())])
    members |= {f"wheels/{_WHEEL}": wheel, f"wheels/python{python}.sums": sums}
    for path in sorted((REPOSITORY / "systemd" / role).iterdir()):
        members[f"systemd/{role}/{path.name}"] = path.read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return lzma.compress(buffer.getvalue())


def _wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        wheel.writestr("third_party/__init__.py", '"""Somebody else\'s."""\n')
    return buffer.getvalue()


def _accounts(root: pathlib.Path, layout: layout_kit.Layout, *, uid: int) -> None:
    """Adds the role's accounts to those that are there."""
    etc, first = root / "etc", 4711 + 10 * list(layout_kit.Role).index(layout.role)
    etc.mkdir(exist_ok=True)
    users, groups = [], []
    for number, name in enumerate(layout.accounts):
        gid = first + number if os.geteuid() == 0 else os.getegid() + first + number
        if os.geteuid() != 0 and layout.role is layout_kit.Role.WORKER:
            gid = os.getegid()  # its group has the socket of the root helper
        users.append(f"{name}:x:{uid}:{gid}:Enlist:/nonexistent:/usr/sbin/nologin")
        groups.append(f"{name}:x:{gid}:")
    for file, lines in (("passwd", users), ("group", groups)):
        with (etc / file).open("a") as written:
            written.write("\n".join([*lines, ""]))


def _rights(here: layout_kit.Layout, root: pathlib.Path, *, uid: int) -> None:
    for folder in (here.prefix, here.root, here.releases, root / "var/lib/enlist"):
        folder.chmod(0o755)
    here.data_dir.chmod(0o700)
    os.chown(here.data_dir, uid, -1)


def _units(here: layout_kit.Layout, layout: layout_kit.Layout, release_id: str) -> None:
    assert here.units is not None
    here.units.mkdir(parents=True, exist_ok=True)
    for unit in units.of_release(here, release_id):
        source = here.release(release_id) / "systemd" / layout.role / unit.name
        shutil.copy(source, here.units / unit.name)  # the default places need no rendering


def run(command: Sequence[str], *, home: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """A command with nothing around it but a home."""
    return subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )
