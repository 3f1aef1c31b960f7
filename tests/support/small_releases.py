"""Small releases for tests: the installer's real code, a command of a few lines, one wheel.

Signed and laid out as the builder does it (`tests.support.bundles` has the real ones, which take
seconds), so that a test can afford a dozen and spoil each in its own way.
"""

import base64
import dataclasses
import hashlib
import io
import lzma
import pathlib
import platform
import sys
import tarfile
import zipfile
from collections.abc import Mapping

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from installer import archive as archive_kit
from installer import release as release_format

ROOT = pathlib.Path(__file__).parents[2]
SYSTEM_PYTHON = next(
    (
        path
        for version in release_format.PYTHONS
        if (path := pathlib.Path(f"/usr/bin/python{version}")).exists()
    ),
    pathlib.Path(sys.executable),
)
"""The Python that install.sh finds here."""

# What the installer's Python half and its copy for removal import, and no more: it is compiled.
_CODE = (
    "installer/*.py",
    *(
        f"runtime_kit/{name}.py"
        for name in ("__init__", "private_files", "crash_points", "reports")
    ),
    "wire_protocol/__init__.py",
)
_COMMAND = """import sys

def main():
    if "--version" in sys.argv:
        print("enlist {version}")
        return 0
    {body}
    return 0
"""
_WHEEL = "small_thing-1.0-py3-none-any.whl"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """One released folder with one archive in it."""

    folder: pathlib.Path
    release: release_format.Release
    archive: pathlib.Path
    public_key: pathlib.Path

    @property
    def install_sh(self) -> pathlib.Path:
        """The script beside the archive, with the key written into it."""
        return self.folder / release_format.INSTALL_SH


def make_key() -> ed25519.Ed25519PrivateKey:
    """A release key of the test's own."""
    return ed25519.Ed25519PrivateKey.generate()


def public_raw(key: ed25519.Ed25519PrivateKey) -> bytes:
    """The 32 bytes of its public half."""
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def public_pem(key: ed25519.Ed25519PrivateKey) -> bytes:
    """The same as PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def make(
    folder: pathlib.Path,
    *,
    key: ed25519.Ed25519PrivateKey,
    version: str = "0.1.0",
    role: release_format.Role = "worker",
    body: str = "print('did', *sys.argv[1:])",
    units: Mapping[str, str] | None = None,
    more: Mapping[str, bytes] | None = None,
) -> Small:
    """Writes a released folder; `body` is what the small command does, `more` goes into code/."""
    folder.mkdir(parents=True, exist_ok=True)
    payload = _payload(_COMMAND.format(version=version, body=body), units or {}, more or {}, role)
    release = release_format.Release(
        role=role,
        version=version,
        arch="aarch64" if platform.machine() == "aarch64" else "x86_64",
        pythons=release_format.PYTHONS,
        commit="0" * 40,
        made_at="2026-01-31T12:00:00Z",
        payload_sha256=hashlib.sha256(payload).hexdigest(),
    )
    script = script_with(key)
    parts = {
        release_format.RELEASE: release.to_bytes(),
        release_format.INSTALL_SH: script,
        release_format.PAYLOAD: payload,
    }
    manifest = release_format.sums(
        (name, hashlib.sha256(data).hexdigest()) for name, data in parts.items()
    )
    content = tar_of(
        {release_format.MANIFEST: manifest, release_format.SIGNATURE: key.sign(manifest), **parts}
    )
    archive = folder / release.archive_name
    archive.write_bytes(content)
    latest = folder / release_format.latest_name(role, release.arch)
    latest.write_bytes(release_format.sums([(archive.name, hashlib.sha256(content).hexdigest())]))
    (folder / release_format.INSTALL_SH).write_bytes(script)
    public = folder / "release.pub"
    public.write_bytes(public_pem(key))
    for path in folder.iterdir():
        path.chmod(0o644)
    folder.chmod(0o755)
    return Small(folder=folder, release=release, archive=archive, public_key=public)


def script_with(key: ed25519.Ed25519PrivateKey) -> bytes:
    """install.sh with this key written into it, as a release does."""

    text = (ROOT / "installer" / "install.sh").read_text()
    filled = f"\nRELEASE_KEY='{base64.b64encode(public_raw(key)).decode()}'\n"
    assert text.count("\nRELEASE_KEY=''\n") == 1
    return text.replace("\nRELEASE_KEY=''\n", filled).encode()


def script_for_roots(*, path: str, uid: int, top: str) -> bytes:
    """install.sh that finds root's programs there, and takes that account for root below `top`."""
    text = (ROOT / "installer" / "install.sh").read_text()
    for name, value in {"ROOTS_PATH": path, "ROOTS_UID": str(uid), "ROOTS_TOP": top}.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name}=")]
        text = text.replace(f"\n{line}\n", f"\n{name}='{value}'\n")
    return text.encode()


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """The outer tar, as the builder spells it."""
    blocks = []
    for name, data in members.items():
        blocks += [archive_kit.header(name, len(data)), data, archive_kit.padding(len(data))]
    return b"".join([*blocks, archive_kit.END])


def members_of(archive: pathlib.Path) -> dict[str, bytes]:
    """The members of an archive, to be spoiled and put together again."""
    with tarfile.open(archive) as tar:
        found = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


def _payload(command: str, units: Mapping[str, str], more: Mapping[str, bytes], role: str) -> bytes:
    files: dict[str, bytes] = {}
    for pattern in _CODE:
        for path in sorted(ROOT.glob(pattern)):
            files[f"code/{path.relative_to(ROOT)}"] = path.read_bytes()
    files["code/operator_cli/__init__.py"] = b""
    files["code/operator_cli/main.py"] = command.encode()
    files |= {f"code/{name}": data for name, data in more.items()}
    files |= {f"systemd/{role}/{name}": text.encode() for name, text in units.items()}
    wheel = _wheel()
    sums = release_format.sums([(_WHEEL, hashlib.sha256(wheel).hexdigest())])
    files |= {f"wheels/python{version}.sums": sums for version in release_format.PYTHONS}
    files[f"wheels/{_WHEEL}"] = wheel
    packed = io.BytesIO()
    with (
        lzma.open(packed, "wb", preset=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as tar,
    ):
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            tar.addfile(member, io.BytesIO(files[name]))
    return packed.getvalue()


def _wheel() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr("small_thing/__init__.py", '"""A small thing."""\n')
        wheel.writestr("small_thing-1.0.dist-info/METADATA", "Name: small-thing\n")
        wheel.writestr("small_thing-1.0.data/scripts/small", "#!/bin/sh\n")
        wheel.writestr("small_thing-1.0.data/purelib/small_more.py", "MORE = 1\n")
    return content.getvalue()
