"""Base images of the machines: built once by mmdebstrap, kept in the user's cache folder.

An image is named after everything it is made from (release, packages, the settings below), so a
changed recipe makes a new one and the old is removed. It is built in a folder aside and renamed
when it is whole; a build that was killed leaves only that folder, which the next one removes.

`python -m tests.support.machines.images bookworm trixie` builds beforehand, both at once.
Known limit: the same recipe built next month holds newer packages; nothing here pins them.
"""

import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
# What a machine at a cloud has before Enlist comes, and no more.
PACKAGES = (
    "ca-certificates", "cloud-init", "curl", "dbus", "iproute2", "openssl", "python3", "sudo",
    "systemd", "systemd-sysv",
)  # fmt: skip
# For a machine that runs a kernel of its own, under emulation.
KERNEL_PACKAGES = ("initramfs-tools", "linux-image-cloud-amd64")
BUILD_SECONDS = 900

SETTINGS = {
    # Set by the test's own file for systemd-networkd.
    "etc/cloud/cloud.cfg.d/90-enlist-test.cfg": (
        "network: {config: disabled}\nlocale: false\ndatasource_list: [NoCloud, None]\n"
        "ssh_deletekeys: false\nssh_genkeytypes: []\n"
    ),
    "etc/machine-id": "",
    "etc/hostname": "machine\n",
    "etc/resolv.conf": "",
}
# Nothing in these machines waits for a disk, a login or an update.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "fstrim.timer", "networking.service", "systemd-resolved.service",
)  # fmt: skip
ENABLED = ("systemd-networkd.service", "systemd-networkd-wait-online.service")


class BuildFailed(Exception):
    """The base image could not be built; the last lines of the builder are in the message."""


def cache_folder() -> pathlib.Path:
    """Where images are kept: outside the checkout, so that every checkout shares them."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "enlist-tests" / "machines"


def image_folder(release: str, *, kernel: bool = False) -> pathlib.Path:
    """Where the image of this release and this recipe is, built or not."""
    recipe = json.dumps([4, release, _packages(kernel), SETTINGS, MASKED, ENABLED], sort_keys=True)
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    return cache_folder() / f"{_kind(release, kernel)}-{digest}"


def ensure_image(release: str, *, kernel: bool = False) -> pathlib.Path:
    """The image's root folder, built where it is missing. Never write into it."""
    if release not in RELEASES:
        raise ValueError(f"No machine is known by the release {release!r}.")
    wanted = image_folder(release, kernel=kernel)
    kind = _kind(release, kernel)
    if wanted.is_dir():
        return wanted
    cache_folder().mkdir(parents=True, exist_ok=True, mode=0o755)
    with (cache_folder() / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.is_dir():
            _forget_others(kind)
            _build(release, wanted, packages=_packages(kernel))
    return wanted


def mirrors(release: str) -> list[str]:
    """Where this machine itself takes Debian's packages from; empty: mmdebstrap's own choice."""
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    known = {line.split(" ", 1)[0] for line in asked.stdout.splitlines() if "Debian" in line}
    archive = sorted(uri for uri in known if uri.rstrip("/").endswith("/debian"))
    security = sorted(uri for uri in known if "debian-security" in uri)
    if not archive:
        return []
    lines = [f"deb {archive[0]} {release} main"]
    return lines + [f"deb {uri} {release}-security main" for uri in security[:1]]


def _kind(release: str, kernel: bool) -> str:  # noqa: FBT001 - of this file alone
    return f"{release}.kernel" if kernel else release


def _packages(kernel: bool) -> list[str]:  # noqa: FBT001 - of this file alone
    return sorted((*PACKAGES, *(KERNEL_PACKAGES if kernel else ())))


def _forget_others(kind: str) -> None:
    for left in (*cache_folder().glob(f"{kind}-*"), *cache_folder().glob(f".{kind}-*")):
        shutil.rmtree(left)


def _build(release: str, wanted: pathlib.Path, *, packages: list[str]) -> None:
    prefix = f".{wanted.name.rpartition('-')[0]}-"
    aside = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=cache_folder()))
    root = aside / "root"
    done = subprocess.run(
        ["mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(packages)}",
         '--aptopt=Acquire::Retries "3"', release, str(root), *mirrors(release)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=BUILD_SECONDS, env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    if done.returncode != 0:
        shutil.rmtree(aside)
        raise BuildFailed(f"The image of {release} could not be built: {done.stdout[-2000:]}")
    for name, content in SETTINGS.items():
        path = root / name
        path.unlink(missing_ok=True)
        path.write_text(content)
    units = root / "etc/systemd/system"
    for name in MASKED:
        (units / name).symlink_to("/dev/null")
    subprocess.run(
        ["systemctl", f"--root={root}", "--quiet", "enable", *ENABLED],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    root.rename(wanted)
    aside.rmdir()


def _built(releases: list[str]) -> Iterator[str]:
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for release, folder in zip(releases, pool.map(ensure_image, releases), strict=True):
            seconds = time.monotonic() - started
            yield f"{RELEASES[release]}: {folder.name}, after {seconds:.0f} s"


if __name__ == "__main__":
    for line in _built(sys.argv[1:] or list(RELEASES)):
        sys.stdout.write(f"{line}\n")
