"""Lays a release out on the disk: code, wheels and a virtual environment made by hand.

No pip, no ensurepip and no network: the wheels that the payload lists for this Python are unpacked
beside the code, and a `pyvenv.cfg` makes the folder an environment of its own. Everything is made
in a folder aside and renamed, so that a release is there whole or not at all; what a killed one
left aside is removed by the next. `files.json` says the hash and mode of each file.
Not for: verifying a signature, which has been done by whoever hands in the payload.
"""

import compileall
import contextlib
import hashlib
import io
import json
import lzma
import os
import pathlib
import py_compile
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO, Final

from installer import layout as layout_kit
from installer import ownership, programs
from installer import release as release_format
from runtime_kit import crash_points

FILES: Final = "files.json"
_ASIDE: Final = ".making-"
_OLD: Final = ".old-"
_MOST_FILES: Final = 50_000
_MOST_BYTES: Final = 1024 * 1024 * 1024  # of all files unpacked; ours have a tenth
_MOST_LIST: Final = 16 * 1024 * 1024
_PLAIN: Final = 0o644
_RUNNABLE: Final = 0o755
_CHUNK: Final = 1024 * 1024
_SYNC_SECONDS: Final = 300.0

ASIDE_MADE = crash_points.declare(
    "install.release-aside", story="A release stands whole under another name."
)


class BadPayload(Exception):
    """The payload does not hold what a release must: use another archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """The interpreter that a release on this machine uses."""

    program: pathlib.Path
    version: str  # 3.11
    full_version: str


def this_python() -> Python:
    """The one that runs the installer, by the name that survives its small updates."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    # Where the installer runs from a release, that release's own environment is looked behind.
    real = pathlib.Path(getattr(sys, "_base_executable", sys.executable))
    by_version = real.with_name(f"python{version}")
    return Python(
        program=by_version if by_version.exists() else real,
        version=version,
        full_version=".".join(str(part) for part in sys.version_info[:3]),
    )


def lay_out(
    layout: layout_kit.Layout,
    *,
    release: release_format.Release,
    install_sh: bytes,
    payload: BinaryIO,
    python: Python,
) -> str:
    """Makes the folder of this release, unless it stands there sound; gives its id.

    One in which another account has a hand is made anew: what it compiled is not in the list.

    Raises `BadPayload`, and `OSError` where there is no room.
    """
    if python.version not in release.pythons:
        raise BadPayload(
            f"This release is for Python {', '.join(release.pythons)}, and here is "
            f"{python.version}."
        )
    folder = layout.release(release.id)
    if faults(folder, python=python) == [] and not any(ownership.below(folder, uid=os.geteuid())):
        return release.id
    layout.releases.mkdir(mode=_RUNNABLE, parents=True, exist_ok=True)
    sweep(layout)
    aside = layout.releases / f"{_ASIDE}{release.id}"
    aside.mkdir(mode=_RUNNABLE)
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, aside, ignore_errors=True)
        _fill(aside, final=folder, release=release, install_sh=install_sh, payload=payload,
              python=python)  # fmt: skip
        _sync(aside)
        crash_points.reach(ASIDE_MADE)
        if folder.exists():  # damaged, or made for a Python that is gone
            folder.rename(layout.releases / f"{_OLD}{release.id}")
        aside.rename(folder)
        undo.pop_all()
    sweep(layout)
    return release.id


def sweep(layout: layout_kit.Layout) -> None:
    """Removes what a killed installation left aside."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(layout.releases)):
            if entry.name.startswith((_ASIDE, _OLD)):
                shutil.rmtree(entry.path)


def faults(folder: pathlib.Path, *, python: Python | None = None) -> list[str]:
    """What is wrong with a release's folder, a sentence each; none: it is as it was made."""
    try:
        document = json.loads((folder / FILES).read_bytes()[:_MOST_LIST])
        listed = [(one["path"], one["sha256"], one["mode"]) for one in document["files"]]
        link, wanted = document["python"], document["python_version"]
    except FileNotFoundError:
        return [f"{folder} is not there, or not whole"]
    except (OSError, ValueError, KeyError, TypeError):
        return [f"{folder / FILES} cannot be read"]
    found = [
        f"{folder / path} {what}"
        for path, sha256, mode in listed
        if (what := _fault(folder / path, sha256=sha256, mode=mode))
    ]
    if not os.access(folder / "bin" / "python", os.X_OK):
        found.append(f"{folder / 'bin' / 'python'} leads to {link}, which is not there")
    if python is not None and wanted != python.version:
        found.append(f"{folder} was made for Python {wanted}")
    return found


def _sync(folder: pathlib.Path) -> None:
    """What was written to this file system survives a power cut; other disks are not waited for."""
    done = programs.ask(["sync", "-f", str(folder)], seconds=_SYNC_SECONDS)
    if done.returncode != 0:
        os.sync()


def _fault(path: pathlib.Path, *, sha256: str, mode: str) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            info = os.fstat(file.fileno())
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if digest != sha256:
        return "has been changed"
    return "" if f"{info.st_mode & 0o7777:04o}" == mode else f"has not mode {mode}"


def _fill(
    aside: pathlib.Path,
    *,
    final: pathlib.Path,
    release: release_format.Release,
    install_sh: bytes,
    payload: BinaryIO,
    python: Python,
) -> None:
    site = aside / "lib" / f"python{python.version}" / "site-packages"
    made = _Written(aside)
    with _opened(payload, beside=aside) as tar:
        _unpack(tar, site=site, made=made, python=python)
    made.file(
        aside / "pyvenv.cfg",
        f"home = {python.program.parent}\ninclude-system-site-packages = false\n"
        f"version = {python.full_version}\nexecutable = {python.program}\n".encode(),
    )
    made.file(
        aside / "bin" / "enlist",
        f"#!{final}/bin/python -I\nimport sys\n\nfrom operator_cli.main import main\n\n"
        "sys.exit(main())\n".encode(),
        mode=_RUNNABLE,
    )
    made.file(aside / release_format.RELEASE, release.to_bytes())
    made.file(aside / release_format.INSTALL_SH, install_sh, mode=_RUNNABLE)
    for name in ("python", "python3", f"python{python.version}"):
        (aside / "bin" / name).symlink_to(python.program if name == "python" else "python")
    _compile(site, aside=aside, final=final)
    made.write_list(python=python)


@contextlib.contextmanager
def _opened(payload: BinaryIO, *, beside: pathlib.Path) -> Iterator[tarfile.TarFile]:
    """The payload's tar, decompressed into a file that has no name, since it is read twice."""
    with tempfile.TemporaryFile(dir=beside) as plain:
        try:
            with lzma.open(payload) as packed:
                _copy(packed, plain, most=_MOST_BYTES)
            plain.seek(0)
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                yield tar
        except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
            raise BadPayload(f"The payload cannot be unpacked: {error}") from error


def _copy(source: IO[bytes], target: IO[bytes], *, most: int) -> None:
    left = most
    while data := source.read(_CHUNK):
        left -= len(data)
        if left < 0:
            raise BadPayload("The payload is larger than any of Enlist's.")
        target.write(data)


def _unpack(tar: tarfile.TarFile, *, site: pathlib.Path, made: "_Written", python: Python) -> None:
    members = _members(tar)
    wanted = _wheels(tar, members, python=python)
    for name, member in members.items():
        kind, *path = _parts(name)
        if kind == "code":
            made.file(site.joinpath(*path), _content(tar, member))
        elif kind == "systemd":
            made.file(made.root.joinpath(kind, *path), _content(tar, member))
        elif kind != "wheels":
            raise BadPayload(f"{name!r} has no place in a payload.")
        elif path[-1] in wanted:
            content = _content(tar, member)
            if hashlib.sha256(content).hexdigest() != wanted.pop(path[-1]):
                raise BadPayload(f"{path[-1]} in the payload is not what its list says.")
            _unpack_wheel(content, site=site, made=made)
    if wanted:
        raise BadPayload(f"The payload lacks {', '.join(wanted)}.")


def _members(tar: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        if len(members) >= _MOST_FILES:
            raise BadPayload("The payload has more files than any of Enlist's.")
        if member.isdir():
            continue
        if not member.isreg():
            raise BadPayload(f"{member.name!r} in the payload is no plain file.")
        members[member.name] = member
    return members


def _wheels(
    tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], *, python: Python
) -> dict[str, str]:
    """The wheels that this Python needs, with their hashes."""
    listed = members.get(f"wheels/python{python.version}.sums")
    if listed is None:
        raise BadPayload(f"The payload has no wheels for Python {python.version}.")
    return release_format.parse_sums(_content(tar, listed))


def _unpack_wheel(content: bytes, *, site: pathlib.Path, made: "_Written") -> None:
    """What goes into site-packages; a wheel's scripts and headers are nothing we use."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as wheel:
            for entry in wheel.infolist():
                if entry.is_dir():
                    continue
                path = _parts(entry.filename)
                if path[0].endswith(".data"):
                    if len(path) < 3 or path[1] not in {"purelib", "platlib"}:
                        continue
                    path = path[2:]
                made.file(site.joinpath(*path), wheel.read(entry))
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise BadPayload(f"A wheel in the payload cannot be unpacked: {error}") from error


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\0" in name or "\\" in name:
        raise BadPayload(f"{name!r} in the payload is no path below it.")
    return parts


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    if file is None:
        raise BadPayload(f"{member.name!r} in the payload is no plain file.")
    with file:
        return file.read()


class _Written:
    """Writes files below a folder and keeps what `files.json` says of them."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self._left = _MOST_BYTES
        self._files: dict[str, dict[str, str]] = {}
        self._folders = {root}

    def file(self, path: pathlib.Path, content: bytes, *, mode: int = _PLAIN) -> None:
        self._left -= len(content)
        name = str(path.relative_to(self.root))
        if self._left < 0 or len(self._files) >= _MOST_FILES:
            raise BadPayload("The payload is larger than any of Enlist's.")
        if path.parent not in self._folders:
            path.parent.mkdir(mode=_RUNNABLE, parents=True, exist_ok=True)
            self._folders.add(path.parent)
        if name in self._files:
            # Two wheels may bring the same licence or namespace file, never two different ones.
            if self._files[name]["sha256"] != hashlib.sha256(content).hexdigest():
                raise BadPayload(f"{name} stands in the payload twice.")
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
        self._files[name] = {
            "path": name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "mode": f"{mode:04o}",
        }

    def write_list(self, *, python: Python) -> None:
        document = {
            "format": 1,
            "python": str(python.program),
            "python_version": python.version,
            "files": [self._files[name] for name in sorted(self._files)],
        }
        path = self.root / FILES
        path.write_bytes((json.dumps(document, indent=1) + "\n").encode())
        path.chmod(_PLAIN)


def _compile(site: pathlib.Path, *, aside: pathlib.Path, final: pathlib.Path) -> None:
    """Compiles now what the service's account may not write later; no start is slower for it."""
    compileall.compile_dir(
        site,
        quiet=2,
        workers=0,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        stripdir=str(aside),
        prependdir=str(final),
    )
