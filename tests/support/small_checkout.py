"""A checkout small enough to be built in a moment, with an index of two wheels beside it.

It has all that the builder looks at: a commit, locks, a version, install.sh, units, and files that
must not be shipped. pip finds the wheels in a folder and nothing else anywhere.
"""

import base64
import dataclasses
import hashlib
import os
import pathlib
import subprocess
import sys
import zipfile
from collections.abc import Sequence

NAMES = ("first", "second-part")
INSTALL_SH = '#!/bin/sh\nRELEASE_KEY=\'\'\nmain() { echo "$RELEASE_KEY"; }\nmain "$@"\n'
_COMMIT_TIME = "2026-01-31T12:00:00+00:00"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """Where it is, and where its wheels are."""

    root: pathlib.Path
    index: pathlib.Path
    cache: pathlib.Path

    def environment(self, *, reaches_index: bool = True, **more: str) -> dict[str, str]:
        """For the builder: no configuration of this machine's pip."""
        plain = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
        plain |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
        if reaches_index:
            plain["PIP_FIND_LINKS"] = str(self.index)
        return plain | more

    def run(
        self,
        module: str,
        *arguments: str,
        umask: int = 0o022,
        environment: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """One of the builder's commands, over this checkout."""
        where = ("--source", str(self.root), "--cache", str(self.cache))
        return subprocess.run(
            [sys.executable, "-m", f"installer.build.{module}", *where, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            umask=umask,
            env=environment or self.environment(),
        )

    def start(
        self, module: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """The same, not waited for."""
        where = ("--source", str(self.root), "--cache", str(self.cache))
        return subprocess.Popen(
            [sys.executable, "-m", f"installer.build.{module}", *where, *arguments],
            stdout=subprocess.DEVNULL,
            env=environment or self.environment(),
        )

    def commit(self) -> None:
        """Commit all that there is, at one time for ever."""
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--message", "All of it")


def make(folder: pathlib.Path) -> Checkout:
    """Make one in an empty folder."""
    checkout = Checkout(
        root=folder / "checkout", index=folder / "index", cache=folder / "wheels-cache"
    )
    checkout.index.mkdir()
    lock = "".join(_locked(name, _wheel(checkout.index, name)) for name in NAMES)
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["setuptools>=77"]\n',
        "requirements/base.lock": f"# made by hand\n{lock}{_locked('setuptools', '0' * 64)}",
        "requirements/platform.lock": lock,
        "wire_protocol/__init__.py": '"""Wire."""\n',
        "wire_protocol/product.py": 'VERSION = "1.2.3"\n',
        "wire_protocol/py.typed": "",
        "wire_protocol/notes.txt": "no part of a package\n",
        "installer/__init__.py": '"""Installer."""\n',
        "installer/build/__init__.py": '"""Builder."""\n',
        "installer/install.sh": INSTALL_SH,
        "platform_server/store/schema.sql": "select 1;\n",
        "systemd/worker/enlist-agent.service": "[Service]\nExecStart=/opt/enlist/worker\n",
        "systemd/platform/enlist-platform.service": "[Service]\nExecStart=/opt/enlist/platform\n",
        "tests/test_nothing.py": "",
        "README.md": "small\n",
        ".gitignore": "dist/\n__pycache__/\n",
    }
    for name, text in files.items():
        path = checkout.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(checkout.root, "init", "--quiet")
    checkout.commit()
    return checkout


def git(root: pathlib.Path, *arguments: str) -> str:
    """Git, with nobody's own settings and a clock that stands."""
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    return subprocess.run(
        ["git", *identity, "-c", "commit.gpgsign=false", "-C", str(root), *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_DATE": _COMMIT_TIME,
            "GIT_COMMITTER_DATE": _COMMIT_TIME,
        },
    ).stdout


def payload_names(folder: pathlib.Path, archive: str) -> Sequence[str]:
    """The names in an archive's payload, as the tar of the machine reads them."""
    outer = subprocess.run(
        ["tar", "-xOf", str(folder / archive), "payload.tar.xz"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    inner = subprocess.run(
        ["tar", "-tJf", "-"], input=outer.stdout, check=True, capture_output=True, timeout=60
    )
    return inner.stdout.decode().splitlines()


def _locked(name: str, sha256: str) -> str:
    return (
        f"{name}==1.0 \\\n    --hash=sha256:{sha256} \\\n    --hash=sha256:{'f' * 64}\n    # via\n"
    )


def _wheel(index: pathlib.Path, name: str) -> str:
    """A wheel of one module; returns its hash."""
    plain = name.replace("-", "_")
    files = {
        f"{plain}.py": f'NAME = "{name}"\n',
        f"{plain}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{plain}-1.0.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(
        f"{path},sha256={_record_hash(text)},{len(text)}\n" for path, text in files.items()
    )
    files[f"{plain}-1.0.dist-info/RECORD"] = record
    path = index / f"{plain}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in files.items():
            wheel.writestr(zipfile.ZipInfo(inside), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
