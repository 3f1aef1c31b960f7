"""Base images: Debian with systemd, cloud-init and Python, built once by mmdebstrap and kept.

An image is named after everything it is made from, so a changed recipe makes a new one; it is built
in a folder aside and renamed when it is whole. The files of a container's image belong to
`FIRST_UID` upwards, which are nobody on the host: root inside is not root outside. The file
/etc/machine-id is empty, so that each machine makes its own. Machines lie over an image and never
write into it.

Known limit: packages are those of the day it was built; `enlist` never removes an image that a
machine may use. Debian's mirror is reached over http, packages are proved by their signatures.
"""

import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
from typing import Final

from provisioning.local import machines, programs

PACKAGES: Final = (
    "ca-certificates", "cloud-init", "curl", "dbus", "iproute2", "openssl", "python3", "sudo",
    "systemd", "systemd-sysv",
)  # fmt: skip
# For a machine with a kernel of its own.
_KERNELS: Final = {"x86_64": "linux-image-cloud-amd64", "aarch64": "linux-image-cloud-arm64"}
BUILD_SECONDS: Final = 1800
FIRST_UID: Final = 1_879_048_192
"""The first of 65,536: what systemd keeps free for containers (0x70000000)."""
UIDS: Final = 65_536
_FORM: Final = 1
_ASIDE: Final = (".building-", *(f".{image}-" for image in machines.RELEASES))
_FILES: Final = {
    "etc/cloud/cloud.cfg.d/90-enlist.cfg": (
        "network: {config: disabled}\nlocale: false\ndatasource_list: [NoCloud, None]\n"
        "ssh_deletekeys: false\nssh_genkeytypes: []\n"
    ),
    "etc/machine-id": "",
    "etc/hostname": "machine\n",
    "etc/resolv.conf": "",
}
_MASKED: Final = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "fstrim.timer", "networking.service", "systemd-resolved.service",
)  # fmt: skip
_ENABLED: Final = ("systemd-networkd.service", "systemd-networkd-wait-online.service")


class BuildFailed(Exception):
    """The base image could not be built; the builder's last words are in the message."""


def place_of(image: str, *, kind: machines.Kind, images: pathlib.Path) -> pathlib.Path:
    """Where this image is, built or not."""
    recipe = [_FORM, image, _packages(kind), FIRST_UID, _FILES, _MASKED, _ENABLED]
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    return images / f"{image}-{kind}-{digest}"


def ensure(image: str, *, kind: machines.Kind, images: pathlib.Path) -> pathlib.Path:
    """The image's root folder, built where it is missing; one builder at a time.

    Raises `BuildFailed`.
    """
    keep_to_root(images)
    wanted = place_of(image, kind=kind, images=images)
    if wanted.is_dir():
        return wanted
    with (images / f".{image}-{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.is_dir():
            _build(image, wanted, kind=kind)
    return wanted


def keep_to_root(images: pathlib.Path) -> None:
    """The folder, for nobody else: its setuid programs are of the day of the build, never updated.

    Raises `BuildFailed` where others may enter a folder that is not for images alone.
    """
    images.mkdir(parents=True, exist_ok=True, mode=0o700)
    about = images.stat()
    is_own = about.st_uid == os.geteuid()
    if is_own and stat.S_IMODE(about.st_mode) & 0o077 == 0:
        return
    ours = (*machines.RELEASES, *_ASIDE)
    if is_own and all(one.name.startswith(ours) for one in images.iterdir()):
        images.chmod(0o700)
        return
    raise BuildFailed(
        f"Others may enter {images}, where images with setuid programs lie: make it root's alone "
        f"(chown root {images}; chmod 0700 {images}), or set [local] images to another folder."
    )


def _packages(kind: machines.Kind) -> list[str]:
    if kind is machines.Kind.NSPAWN:
        return sorted(PACKAGES)
    kernel = _KERNELS.get(os.uname().machine, "linux-image-cloud-amd64")
    return sorted((*PACKAGES, "initramfs-tools", kernel))


def _build(image: str, wanted: pathlib.Path, *, kind: machines.Kind) -> None:
    release = machines.RELEASES[image]
    for left in wanted.parent.glob(f".building-{image}-*"):  # by a builder that was killed
        shutil.rmtree(left)
    aside = pathlib.Path(tempfile.mkdtemp(prefix=f".building-{image}-", dir=wanted.parent))
    try:
        _bootstrap(release, aside / "root", packages=_packages(kind))
        _settle(aside / "root")
        if kind is machines.Kind.NSPAWN:
            _shift(aside / "root", by=FIRST_UID)
        (aside / "root").rename(wanted)
    finally:
        shutil.rmtree(aside)


def _bootstrap(release: str, root: pathlib.Path, *, packages: list[str]) -> None:
    command = [
        *("mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(packages)}"),
        *('--aptopt=Acquire::Retries "3"', release, str(root), *mirrors(release)),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except FileNotFoundError:
        raise BuildFailed("mmdebstrap is not here: apt-get install mmdebstrap") from None
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"mmdebstrap did not end within {BUILD_SECONDS} s.") from None
    if done.returncode != 0:
        raise BuildFailed(f"The image of {release} could not be built: {done.stdout[-1000:]}")


def _settle(root: pathlib.Path) -> None:
    for name, content in _FILES.items():
        path = root / name
        path.unlink(missing_ok=True)
        path.write_text(content)
    units = root / "etc/systemd/system"
    for name in _MASKED:
        (units / name).symlink_to("/dev/null")
    programs.run("systemctl", f"--root={root}", "--quiet", "enable", *_ENABLED)


def _shift(root: pathlib.Path, *, by: int) -> None:
    """Gives every file to the machines' users; a change of owner takes setuid bits, put back."""
    for folder, folders, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in (*folders, *files))):  # noqa: PTH118 - tens of thousands of them
            about = os.lstat(path)
            if about.st_uid >= by:
                continue
            os.lchown(path, about.st_uid + by, about.st_gid + by)
            if not stat.S_ISLNK(about.st_mode):
                os.chmod(path, stat.S_IMODE(about.st_mode))  # noqa: PTH101 - likewise


def mirrors(release: str) -> list[str]:
    """Where this host itself takes Debian's packages from; empty: mmdebstrap's own choice."""
    try:
        shown = programs.run(
            *("apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages")
        )
    except programs.Failed:  # no Debian
        return []
    known = {line.split(" ", 1)[0] for line in shown.splitlines() if "Debian" in line}
    archive = sorted(uri for uri in known if uri.rstrip("/").endswith("/debian"))
    security = sorted(uri for uri in known if "debian-security" in uri)
    if not archive:
        return []
    lines = [f"deb {archive[0]} {release} main"]
    return lines + [f"deb {uri} {release}-security main" for uri in security[:1]]
