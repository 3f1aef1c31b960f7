"""What is known of one local machine: a folder named after it, with one file that says the rest.

The folder is made aside and renamed when it is whole; the name, derived from the operation and the
attempt, can be taken once, which is the native idempotency of this provider. The file's last fields
change while the machine lives; it is replaced in one step and is the last to go.

Known limit: a folder is believed for its file, and root alone can write there.
"""

import dataclasses
import datetime
import enum
import ipaddress
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Final

from provisioning import contract, naming
from runtime_kit import private_files

FOLDER: Final = pathlib.Path("/var/lib/enlist/machines")
IMAGES: Final = pathlib.Path("/var/cache/enlist/images")
RECORD: Final = "machine.json"
MOST_RECORD_BYTES: Final = 16_384
MOST_MACHINES: Final = 200
REGION: Final = "local"
_ASIDE: Final = ".making-"
# RFC 1918. What Python calls private is more: documentation, benchmarks, this very host.
_PRIVATE: Final = tuple(
    ipaddress.IPv4Network(one) for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,51}-[0-9a-f]{10}")
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Kind(enum.StrEnum):
    """What holds a machine."""

    NSPAWN = "nspawn"
    QEMU = "qemu"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size that can be ordered here."""

    name: str
    cores: int
    memory_megabytes: int
    disk_gigabytes: int


SIZES: Final[Mapping[str, Size]] = {
    size.name: size
    for size in (
        Size(name="small", cores=1, memory_megabytes=1024, disk_gigabytes=4),
        Size(name="medium", cores=2, memory_megabytes=2048, disk_gigabytes=8),
        Size(name="large", cores=4, memory_megabytes=4096, disk_gigabytes=16),
    )
}
RELEASES: Final[Mapping[str, str]] = {"debian-12": "bookworm", "debian-13": "trixie"}


class Unusable(ValueError):
    """An order, a name or a record that is not of the form that it must have."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is ordered. `network` is the bridge's, in which the machine gets an address."""

    kind: Kind
    owner: contract.Owner
    size: str
    image: str
    network: str
    first_boot: str = dataclasses.field(repr=False)

    @property
    def name(self) -> str:
        """The machine's, and its folder's."""
        return naming.name_of(self.owner)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that was ordered, as its file has it."""

    kind: Kind
    name: str
    owner: contract.Owner
    size: str
    image: str
    network: str
    address: str
    created_at: datetime.datetime
    is_deleting: bool = False

    @property
    def instance_id(self) -> str:
        """What cloud-init is told: the same over reboots, another for each machine."""
        return f"i-{self.name}"

    @property
    def gateway(self) -> str:
        """The bridge's own address."""
        return str(next(ipaddress.ip_network(self.network).hosts()))

    def to_bytes(self) -> bytes:
        """The file's content."""
        content = dataclasses.asdict(self)
        content["created_at"] = self.created_at.isoformat()
        return json.dumps(content, indent=2).encode() + b"\n"


def parse_wish(fields: Mapping[str, Any]) -> Wish:
    """An order as it comes over the helper's socket; raises `Unusable`."""
    try:
        wish = Wish(
            kind=Kind(fields["kind"]),
            owner=_owner(fields["owner"]),
            **{name: _text(fields, name) for name in ("size", "image", "network", "first_boot")},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"The order of a machine is not of this form: {error}.") from error
    check(wish)
    return wish


def check(wish: Wish) -> None:
    """Whether this can be made at all; raises `Unusable` with what is wrong."""
    if wish.size not in SIZES:
        raise Unusable(f"There is no size {wish.size!r} here, only: {', '.join(SIZES)}.")
    if wish.image not in RELEASES:
        raise Unusable(f"There is no image {wish.image!r} here, only: {', '.join(RELEASES)}.")
    if len(wish.first_boot) > contract.MOST_FIRST_BOOT_BYTES or not wish.first_boot.isascii():
        raise Unusable("First-boot data is ASCII and has at most 15,872 bytes.")
    check_name(wish.name)
    check_network(wish.network)


def check_name(name: str) -> str:
    """The name again, if it is one that an operation gives; raises `Unusable`."""
    if not _NAME.fullmatch(name):
        raise Unusable(f"{name[:80]!r} is no name of a local machine.")
    return name


def check_network(text: str) -> ipaddress.IPv4Network:
    """A private IPv4 network of a sensible size; raises `Unusable`."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise Unusable(f"{text!r} is no IPv4 network such as 10.99.0.0/24: {error}.") from error
    if not any(network.subnet_of(one) for one in _PRIVATE):
        raise Unusable(f"{network} is no private network; take one as 10.99.0.0/24.")
    if not 16 <= network.prefixlen <= 28:
        raise Unusable(f"{network} has to have a prefix from /16 to /28.")
    return network


def read(folder: pathlib.Path) -> Machine | None:
    """What the file of this machine's folder says; None where there is no machine.

    Raises `Unusable` where the file is damaged.
    """
    try:
        raw = private_files.read_bounded(folder / RECORD, max_bytes=MOST_RECORD_BYTES)
    except FileNotFoundError:
        return None
    try:
        return parse(json.loads(raw))
    except ValueError as error:
        raise Unusable(f"{folder / RECORD} is damaged: {error}") from error


def parse(content: Mapping[str, Any]) -> Machine:
    """Reads what `to_bytes` wrote; raises `Unusable`."""
    try:
        return Machine(
            kind=Kind(content["kind"]),
            name=check_name(content["name"]),
            owner=_owner(content["owner"]),
            size=content["size"],
            image=content["image"],
            network=content["network"],
            address=content["address"],
            created_at=datetime.datetime.fromisoformat(content["created_at"]),
            is_deleting=bool(content["is_deleting"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"It is no record of a machine: {error}.") from error


def write(folder: pathlib.Path, machine: Machine) -> None:
    """Replaces the file in one step."""
    private_files.write_private(folder / RECORD, machine.to_bytes())


def all_in(top: pathlib.Path) -> list[Machine]:
    """Every machine of that folder; bounded by what can be made."""
    try:
        names = sorted(one.name for one in top.iterdir() if not one.name.startswith("."))
    except FileNotFoundError:
        return []
    found = (read(top / name) for name in names if _NAME.fullmatch(name))
    return [machine for machine in found if machine is not None]


def aside_of(name: str) -> str:
    """The name of the folder while it is made; no machine's."""
    return f"{_ASIDE}{name}"


def free_address(network: ipaddress.IPv4Network, *, taken: frozenset[str]) -> str:
    """The first address that no machine has; raises `Unusable` where all are given."""
    hosts = network.hosts()
    next(hosts)  # the bridge's own
    found = next((str(host) for host in hosts if str(host) not in taken), None)
    if found is None:
        raise Unusable(f"No address is free in {network}: delete machines, or take a larger one.")
    return found


def _text(fields: Mapping[str, Any], name: str) -> str:
    found = fields[name]
    if not isinstance(found, str):
        raise TypeError(f"{name} is no text")
    return found


def _owner(fields: Mapping[str, Any]) -> contract.Owner:
    texts = {name: fields[name] for name in ("installation", "infra", "operation", "node")}
    for name, text in texts.items():
        if not isinstance(text, str) or not _WORD.fullmatch(text):
            raise ValueError(f"owner.{name} is {text!r}")
    attempt = fields["attempt"]
    if not isinstance(attempt, int) or not 1 <= attempt <= 1000:
        raise ValueError(f"owner.attempt is {attempt!r}")
    return contract.Owner(attempt=attempt, **texts)
