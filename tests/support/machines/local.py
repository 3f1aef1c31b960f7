"""A Platform as on a laptop: `enlist serve` on this very host, making machines on this very host.

The product's own driver makes, boots and removes them; here is where they stand (a bridge, folders
and images of the tests' own), what is asked of them from outside, and what must be left of them.

Needs root and what `why_not` names. Known limit: the images are the product's, kept between runs in
the user's cache folder; the first run builds them, which takes a minute or two and a mirror.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from provisioning import contract
from provisioning.local import bridge, disk, host, images, keeper, launching, machines
from tests.support import bundles, real_platform
from tests.support import machines as machine_support

BRIDGE = "enlt0"
NETWORK = "10.97.13.0/24"
ADDRESS = "10.97.13.1"
IMAGE = "debian-12"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMAND_SECONDS = 240.0
Seen = TypeVar("Seen")
PACE_SECONDS = 0.1
QUICK = {
    "ENLIST_LOCAL__BRIDGE": BRIDGE,
    "ENLIST_LOCAL__NETWORK": NETWORK,
    "ENLIST_GATEWAY__HEARTBEAT_SECONDS": "3",
    "ENLIST_PROBE__INTERVAL_SECONDS": "1",
}


def why_not() -> str | None:
    """Why no machine can be made here; None where it can."""
    reason = machine_support.why_not()
    if reason is not None:
        return reason
    missing = host.missing_programs(machines.Kind.NSPAWN)
    return f"machines need {', '.join(missing)}" if missing else None


def image_cache() -> pathlib.Path:
    """Where the product's images are kept for tests."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "enlist-tests" / "local-images"


def ensure_image(kind: machines.Kind = machines.Kind.NSPAWN) -> pathlib.Path:
    """The image, built where it is missing."""
    return images.ensure(IMAGE, kind=kind, images=image_cache())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Laptop:
    """The Platform, and the folders of its machines."""

    platform: real_platform.RealPlatform
    places: host.Places

    def run(self, *arguments: str, expect: int = 0) -> str:
        """One `enlist` command; what it printed."""
        return self.attempt(*arguments, expect=expect).stdout

    def attempt(
        self, *arguments: str, expect: int, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """The same, with all it said."""
        done = subprocess.run(
            [*real_platform.ENLIST, "--data-dir", str(self.platform.data_dir), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=real_platform.clean_environment(),
        )
        log = real_platform.tail(self.platform.log)
        assert done.returncode == expect, (arguments, done.returncode, done.stderr, log)
        return done

    def document(self, *arguments: str, expect: int = 0) -> dict[str, Any]:
        """What a command prints as one JSON document."""
        found = json.loads(self.run(*arguments, "-o", "json", expect=expect))
        assert isinstance(found, dict)
        return found

    def node(self, node_id: str) -> dict[str, Any]:
        """The node as it is listed; empty where there is none."""
        listed = self.platform.api("GET", "/nodes?limit=200")["nodes"]
        return next((one for one in listed if one["node_id"] == node_id), {})

    def wait_node(self, node_id: str, *, seconds: float = 60.0, **wanted: Any) -> dict[str, Any]:
        """Waits until its fields have these values."""
        return wait(
            lambda: self.node(node_id),
            until=lambda found: all(found.get(name) == value for name, value in wanted.items()),
            what=f"{node_id} is {wanted}",
            seconds=seconds,
        )

    def guest(self, ref: str) -> "Guest":
        """One of its machines, from outside."""
        return Guest(self.places.folder / ref)


class Guest:
    """A running machine, entered by its process 1."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    @property
    def leader(self) -> int:
        """Its process 1, as this host counts."""
        pid = launching.keeper_of(self.folder)
        assert pid is not None, self.console()
        for child in _descendants(pid):
            if keeper._leader(child) is not None:
                return keeper._leader(child) or 0
        raise AssertionError(f"{self.folder.name} has no process 1: {self.console()}")

    def run(self, *command: str, seconds: float = 60) -> str:
        """Runs a command in it, which must succeed."""
        done = subprocess.run(
            ["nsenter", f"--target={self.leader}", "--all", "--wdns=/", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root"},
        )
        assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def booted(self) -> bool:
        """Whether every start job is done."""
        try:
            self.run("systemctl", "is-system-running")
        except AssertionError:
            return False
        return True

    def write(self, path: str, text: str) -> None:
        """Lays a file on its disk, for all to read."""
        target = pathlib.Path(f"/proc/{self.leader}/root{path}")
        target.write_text(text)
        target.chmod(0o644)

    def console(self) -> str:
        """The end of what it showed."""
        try:
            return (self.folder / keeper.CONSOLE).read_text(errors="replace")[-4000:]
        except FileNotFoundError:
            return ""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One run with this bridge at a time: the second waits for the first."""
    lock = pathlib.Path("/run/enlist-tests-local.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def opened(
    folder: pathlib.Path,
    *,
    environment: Mapping[str, str] | None = None,
    directory: pathlib.Path | None = None,
    image_folder: pathlib.Path | None = None,
    with_bundle: bool = True,
) -> Iterator[Laptop]:
    """Such a Platform for the length of a `with`; no machine of it is left, whatever happened."""
    places = host.Places(
        folder=directory or folder / "machines",
        images=image_folder or image_cache(),
        bridge=BRIDGE,
    )
    given = {
        **QUICK,
        "ENLIST_LOCAL__DIRECTORY": str(places.folder),
        "ENLIST_LOCAL__IMAGES": str(places.images),
        **(environment or {}),
    }
    try:
        with real_platform.running(
            folder / "platform", "--bundle-port", "0", environment=given
        ) as platform:
            laptop = Laptop(platform=platform, places=places)
            if with_bundle:
                offer_worker(platform, folder)
            yield laptop
    finally:
        remove_all(places)


def offer_worker(platform: real_platform.RealPlatform, _folder: pathlib.Path) -> None:
    """Has the Platform serve this checkout's worker."""
    released = bundles.released("worker", pythons=("3.11",))
    platform.enlist(
        *("platform", "bundles", "add", str(released.folder)),
        *("--release-key", str(released.public_key)),
    )


@contextlib.contextmanager
def bridged(folder: pathlib.Path) -> Iterator[host.Places]:
    """The bridge and places for machines that stand in for a provider's."""
    places = host.Places(folder=folder / "vms", images=image_cache(), bridge=BRIDGE)
    bridge.Bridge(BRIDGE).ensure(machines.check_network(NETWORK))
    try:
        yield places
    finally:
        remove_all(places)


@contextlib.contextmanager
def booted(places: host.Places, *, user_data: bytes, instance_id: str) -> Iterator[Guest]:
    """A real machine, booting what a provider was given; to itself it has the provider's id."""
    here = host.Host(places, launcher=_Posing(instance_id))
    owner = contract.Owner(
        installation="vms", infra="default", operation=instance_id, node="vm", attempt=1
    )
    wish = machines.Wish(
        kind=machines.Kind.NSPAWN,
        owner=owner,
        size="small",
        image=IMAGE,
        network=NETWORK,
        first_boot=user_data.decode("ascii"),
    )
    seen = here.create(wish, now=datetime.datetime.now(tz=datetime.UTC))
    try:
        yield Guest(places.folder / seen.machine.name)
    finally:
        here.delete(seen.machine.name)


class _Posing(launching.Processes):
    """Lays the seed with another instance id before the keeper would lay its own."""

    def __init__(self, instance_id: str) -> None:
        self._instance_id = instance_id

    def start(self, folder: pathlib.Path, command: Sequence[str], *, size: machines.Size) -> None:
        machine = machines.read(folder)
        assert machine is not None
        upper, kept, id_ = folder / disk.UPPER, folder / disk.USER_DATA, self._instance_id

        @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
        class Posing(machines.Machine):
            @property
            def instance_id(self) -> str:
                return id_

        fields = {field.name: getattr(machine, field.name) for field in dataclasses.fields(machine)}
        upper.mkdir(mode=0o755)
        os.chown(upper, images.FIRST_UID, images.FIRST_UID)
        disk.lay_seed(
            upper, machine=Posing(**fields), user_data=kept.read_bytes(), owner=images.FIRST_UID
        )
        (folder / "seeded").touch()
        super().start(folder, command, size=size)


def remove_all(places: host.Places) -> None:
    """Every machine of these folders, and the bridge."""
    here = host.Host(places)
    for seen in here.all():
        here.delete(seen.machine.name)
    bridge.Bridge(places.bridge).remove_if_unused()


def traces(places: host.Places, ref: str) -> list[str]:
    """What this host still has of a machine, in words; empty where nothing is left."""
    found = []
    if (places.folder / ref).exists():
        found.append(f"folder {places.folder / ref}")
    found += [str(one) for one in places.folder.glob(".making-*")]
    for pid in (int(one.name) for one in pathlib.Path("/proc").iterdir() if one.name.isdigit()):
        with contextlib.suppress(OSError):
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if ref in line and pid != os.getpid() and launching.identity(pid):
                found.append(f"process {pid}: {line}")
    mounts = pathlib.Path("/proc/self/mounts").read_text()
    found += [f"mount {line}" for line in mounts.splitlines() if ref in line]
    found += [f"control group {one}" for one in launching.groups_of(ref) if one.exists()]
    links = subprocess.run(
        ["ip", "-o", "link", "show"], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    found += [f"link {line}" for line in links.splitlines() if f"master {places.bridge}" in line]
    return found


def wait(
    look: Callable[[], Seen], *, until: Callable[[Seen], bool], what: str, seconds: float
) -> Seen:
    """Looks again and again, bounded; what was seen last is in the error."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found and until(found):
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"Within {seconds} s it did not happen that {what}: {found}")
        time.sleep(PACE_SECONDS)


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[pathlib.Path]:
    """A folder that has room for so much and no more."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="enlist-small-"))
    try:
        _host("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "small", str(folder))
        yield folder
    finally:
        if folder.is_mount():
            _host("umount", "--lazy", str(folder))
        folder.rmdir()


@contextlib.contextmanager
def image_without(path: str, *, package: str) -> Iterator[pathlib.Path]:
    """A folder of images whose image lacks one path, and the record that a package is there."""
    base = ensure_image()
    with small_disk(16) as disk:
        upper, work, merged = disk / "upper", disk / "work", disk / "images" / base.name
        for one in (upper, work, merged):
            one.mkdir(parents=True)
        upper.chmod(0o755)
        os.chown(upper, images.FIRST_UID, images.FIRST_UID)
        layers = f"lowerdir={base},upperdir={upper},workdir={work}"
        _host("mount", "-t", "overlay", "overlay", "-o", layers, str(merged))
        try:
            shutil.rmtree(merged / path.lstrip("/"))
            status = merged / "var/lib/dpkg/status"
            kept = [
                entry
                for entry in status.read_text().split("\n\n")
                if not entry.startswith(f"Package: {package}\n")
            ]
            status.write_text("\n\n".join(kept))
            yield disk / "images"
        finally:
            _host("umount", "--lazy", str(merged))


@contextlib.contextmanager
def cut_off() -> Iterator[None]:
    """Nothing that machines on the bridge send reaches this host."""
    table = ("inet", "enlist-tests")
    _host("nft", "add", "table", *table)
    try:
        _host("nft", "add", "chain", *table, "in", "{ type filter hook input priority 0 ; }")
        _host("nft", "add", "rule", *table, "in", "iifname", BRIDGE, "drop")
        yield
    finally:
        _host("nft", "delete", "table", *table)


def _host(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _descendants(pid: int) -> list[int]:
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{one}/task/{one}/children").read_text()
            left += [int(child) for child in text.split()]
    return found
