"""An installed worker in a mount namespace of its own: real paths, a real account, nothing left.

`/opt`, `/var/lib`, units, commands and the account files are a test's own inside, and the network
is the test's; the release is the checkout's, built by the real builder and laid out by the real
installer for a Python that every account may run. Needs root. Not there: systemd, and so no units
that run.
"""

import asyncio
import dataclasses
import io
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from installer import archive, switch, tree
from installer import layout as layout_kit
from installer import receipt as receipt_kit
from tests.support import bundles, worker_command

UID = 61_234  # of the account enlist-worker, inside
ENLIST = "/opt/enlist/worker/current/bin/enlist"
PYTHON = "/opt/enlist/worker/current/bin/python"
DATA = pathlib.Path("/var/lib/enlist/worker")
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ENTER = """
set -e
mount -t tmpfs -o mode=0755 tmpfs /var/lib
mkdir -m 0755 /var/lib/enlist
mount --bind "$0/state" /var/lib/enlist
mount --bind "$0/opt" /opt
mount --bind "$0/passwd" /etc/passwd
mount --bind "$0/group" /etc/group
mount -t tmpfs -o mode=0755 tmpfs /etc/systemd/system
mount -t tmpfs -o mode=0755 tmpfs "$0/bin"
mkdir "$0/bin/upper" "$0/bin/work"
mount -t overlay -o "lowerdir=/usr/local/bin,upperdir=$0/bin/upper,workdir=$0/bin/work" \
    overlay /usr/local/bin
exec "$@"
"""


def python_of_all() -> tree.Python | None:
    """A Python of the distribution's that releases are built for, and every account may run."""
    for version in ("3.11", "3.12", "3.13"):
        program = pathlib.Path(f"/usr/bin/python{version}")
        if program.exists():
            said = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=True
            )
            return tree.Python(
                program=program, version=version, full_version=said.stdout.split()[-1]
            )
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """One such machine; `folder` holds what is seen inside."""

    folder: pathlib.Path

    @property
    def data(self) -> pathlib.Path:
        """The data directory, from outside."""
        return self.folder / "state/worker"

    @property
    def helper(self) -> pathlib.Path:
        """The root helper's folder, from outside."""
        return self.folder / "state/helper"

    async def run(
        self,
        *command: str,
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
        umask: int = 0o022,
        as_account: bool = False,
    ) -> worker_command.Ended:
        """Runs a command inside, as root unless told otherwise."""
        words = [*_inside(self.folder)]
        if as_account:
            words += ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        process = await asyncio.create_subprocess_exec(
            *words,
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": "/", **(environment or {})},
            umask=umask,
            cwd="/",
        )
        async with asyncio.timeout(worker_command.SECONDS):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return worker_command.Ended(code=process.returncode, out=out.decode(), err=err.decode())

    def owners(self) -> set[int]:
        """Who owns what is in the data directory, the directory included."""
        return {path.lstat().st_uid for path in (self.data, *self.data.rglob("*"))}

    def modes(self) -> set[str]:
        """The modes of all that is in it."""
        return {oct(path.lstat().st_mode & 0o7777) for path in (self.data, *self.data.rglob("*"))}


def make(folder: pathlib.Path) -> Here:
    """A machine on which the worker is installed and has not joined."""
    python = python_of_all()
    assert python is not None
    released = bundles.released("worker", pythons=(python.version,))
    (folder / "opt").mkdir(mode=0o755)
    _rest(folder)
    subprocess.run(
        [
            *_inside(folder),
            *(sys.executable, "-m", "tests.support.installed_here"),
            *(str(released.archive), str(released.public_key)),
        ],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        check=True,
        umask=0o022,
    )
    return Here(folder=folder)


def another(first: Here, folder: pathlib.Path) -> Here:
    """Another with the same release, which is only read; its data are its own."""
    (folder / "opt").symlink_to(first.folder / "opt")
    _rest(folder)
    return Here(folder=folder)


def _rest(folder: pathlib.Path) -> None:
    (folder / "bin").mkdir(mode=0o755)
    (folder / "state").mkdir(mode=0o755)
    (folder / "state/worker").mkdir(mode=0o700)
    os.chown(folder / "state/worker", UID, UID)
    shutil.copyfile("/etc/passwd", folder / "passwd")
    shutil.copyfile("/etc/group", folder / "group")
    with (folder / "passwd").open("a") as file:
        file.write(f"enlist-worker:x:{UID}:{UID}:Enlist:/nonexistent:/usr/sbin/nologin\n")
    with (folder / "group").open("a") as file:
        file.write(f"enlist-worker:x:{UID}:\n")


def _inside(folder: pathlib.Path) -> Sequence[str]:
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, str(folder))


def _lay_out(archive_file: pathlib.Path, key: pathlib.Path) -> None:
    """Inside: what the installer leaves."""
    python = python_of_all()
    assert python is not None
    layout = layout_kit.system(layout_kit.Role.WORKER)
    layout.root.mkdir(parents=True)
    with archive_file.open("rb") as file:
        found = archive.read(file, verify=lambda _manifest, _signature: True)
        file.seek(found.payload_offset)
        payload = io.BytesIO(file.read(found.payload_size))
    release_id = tree.lay_out(
        layout,
        release=found.release,
        install_sh=found.install_sh,
        payload=payload,
        python=python,
    )
    switch.to_release(layout, release_id)
    shutil.copyfile(key, layout.release_key)
    now = receipt_kit.now()
    receipt_kit.write(
        receipt_kit.Receipt(
            role=layout.role,
            version=found.release.version,
            release=release_id,
            prefix=layout.prefix,
            data_dir=layout.data_dir,
            account=layout.account,
            link=layout.link,
            installed_at=now,
            updated_at=now,
        ),
        layout=layout,
    )


if __name__ == "__main__":
    _lay_out(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
