"""What every provider is to the Platform: one driver, the same questions, the same three answers.

A driver is opened for one connection and closed again. It holds no state that matters: whatever it
must know again later stands in what it returned. Library retries are off; a driver sends a call
that changes something exactly once and raises `outcomes.Fault` for anything but a clear yes.
Reading may be repeated inside a driver, bounded, since it changes nothing.

Every call to the provider is announced to `Observer` before it is made: what cannot be recorded is
not done. Times are aware and in UTC; money is in millionths of the currency's unit per hour.

Known limit: one machine an order; groups are orders side by side.
"""

import dataclasses
import datetime
import enum
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol

MOST_FIRST_BOOT_BYTES: Final = 16_384 - 512
"""EC2's limit is the narrowest, before base64; the rest is for the provider's own wrapping."""


class Capability(enum.StrEnum):
    """What a driver can do beyond the core; CLI and dashboard obey."""

    CONSOLE = "console"  # the console's output can be read
    CUSTOM_IMAGE = "custom-image"
    FEDERATION = "federation"  # no long-lived secret is needed
    NESTED_VIRT = "nested-virt"
    NETWORKS = "networks"  # --network and --subnet
    PRICE = "price"  # the provider tells prices
    REBOOT = "reboot"
    SNAPSHOTS = "snapshots"
    SSH_KEY = "ssh-key"
    ADDRESSES = "addresses"  # stable ones
    VOLUMES = "volumes"


class Feature(enum.StrEnum):
    """What a credential may be needed for; the least-privilege text is made of these."""

    CHECK = "check"
    CATALOG = "catalog"
    MACHINES = "machines"
    SSH = "ssh"
    VOLUMES = "volumes"
    SNAPSHOTS = "snapshots"
    ADDRESSES = "addresses"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One row of a driver's table of calls: the provider's name for it, and the right it needs."""

    name: str  # as the fake's ledger has it, `POST /v1/servers`, `ec2:RunInstances`
    feature: Feature
    right: str | None = None  # None: needs no right of its own
    changes: bool = False
    costs: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a machine is; every tag is made of this, and only this is ever believed.

    `installation` and `operation` are our own random ids, safe in every provider's selectors.
    """

    installation: str
    infra: str
    operation: str
    node: str
    attempt: int


class Observer(Protocol):
    """Told before each call that a driver makes; whatever it raises stops the call."""

    def __call__(self, call: ApiCall, /) -> Awaitable[None]:
        """Records it."""
        ...


# --- ordering -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """A person's key on the machine, and from where port 22 is reached; empty: from nowhere."""

    public_key: str
    sources: tuple[str, ...] = ()
    until: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One attempt to create one machine, written down before it is sent and never changed after.

    The same attempt is sent byte for byte the same, first-boot data included. `settings` are the
    provider's own (resource group, project); `zone` is where names and tokens are unique.
    """

    owner: Owner
    name: str
    client_token: str
    region: str
    size: str
    image: str
    first_boot: str = dataclasses.field(repr=False)
    zone: str | None = None
    network: str | None = None
    subnet: str | None = None
    public_ipv4: bool = True
    public_ipv6: bool = True
    disk_gigabytes: int | None = None
    ssh: Ssh | None = None
    volumes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class ChildKind(enum.StrEnum):
    """What hangs on a machine and may outlive it."""

    DISK = "disk"
    VOLUME = "volume"
    SNAPSHOT = "snapshot"
    ADDRESS = "address"
    INTERFACE = "interface"
    SECURITY_GROUP = "security-group"
    SSH_KEY = "ssh-key"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One of them. `keep`: it was there before, or is data; the machine goes without it."""

    kind: ChildKind
    ref: str
    name: str = ""
    region: str = ""
    keep: bool = False
    attached_to: str | None = None
    owner: Owner | None = None
    size_gigabytes: int | None = None
    address: str | None = None
    created_at: datetime.datetime | None = None
    hourly: "Price | None" = None


class Power(enum.StrEnum):
    """What the provider says a machine is doing, in our words."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    OFF = "off"  # still billed at most providers
    DELETING = "deleting"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine as the provider sees it. `ref` is its id there; `raw_state` its own word.

    `instance_id` is its id as its own metadata service tells it to the machine; None where that is
    not known for certain. A half-made one (children alone) has power `FAILED`.
    """

    ref: str
    name: str
    region: str
    power: Power
    raw_state: str
    zone: str | None = None
    instance_id: str | None = None
    owner: Owner | None = None  # None: carries none of our tags, or not all of them
    size: str = ""
    image: str = ""
    addresses: tuple[str, ...] = ()
    private_addresses: tuple[str, ...] = ()
    created_at: datetime.datetime | None = None
    children: tuple[Child, ...] = ()
    failure: str | None = None  # what it died of, in the provider's words
    failure_code: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The provider has accepted: store `ref`, `progress` and `children` before anything else.

    `progress` is the provider's own handle of what is still under way (an action, an operation's
    address), to be given to `poll`; None where describing the machine is enough.
    """

    ref: str
    progress: str | None = None
    children: tuple[Child, ...] = ()
    instance: Instance | None = None


class Progress(enum.StrEnum):
    """How what was accepted is doing."""

    RUNNING = "running"
    DONE = "done"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """What a look-up found. Only `is_complete` (all pages, no zone unreachable) may mean "none"."""

    instances: tuple[Instance, ...]
    is_complete: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LookupRules:
    """When "absent" may be believed after an unknown outcome (one row of the design's table).

    `replays`: sending the same request again answers by itself (a client token), and is a look-up.
    """

    clean_answers: int
    settle: datetime.timedelta
    replays: bool = False


# --- the catalogue and prices -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What something costs by the hour. `as_of` is set where it is an estimate of that day."""

    hourly_micros: int
    currency: str
    as_of: datetime.date | None = None
    monthly_cap_micros: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size that can be ordered. `regions` are those that have it now."""

    name: str
    cores: int
    memory_bytes: int
    disk_bytes: int
    architecture: str  # as `uname -m` says it
    regions: tuple[str, ...]
    prices: Mapping[str, Price] = dataclasses.field(default_factory=dict)  # by region; "" for all
    nested_virt: bool = False
    withdrawn: bool = False
    withdrawn_after: datetime.date | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the provider offers this connection now."""

    regions: tuple[str, ...]
    sizes: tuple[Size, ...]
    images: tuple[str, ...] = ()
    address_price: Price | None = None  # of the public IPv4, where it is extra
    told_at: datetime.datetime | None = None


# --- the credential -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What a credential turned out to be and to be able to do, found without creating anything.

    `missing` are rights by the provider's own names; `unproved` those that only a use can prove.
    `room` is how many more machines the account allows, None where the provider does not say.
    """

    account: str
    principal: str
    missing: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()
    room: int | None = None
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `validating` found for this very request: each sentence stops the order.

    `warnings` do not. `price` is that of machine, disk and addresses together. `settled` is the
    request with what it left open made exact (an image's id, a subnet and its zone, the client
    token of that zone): where it is given, it is what to write down and send. Asked again with it,
    the driver changes nothing more.
    """

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    price: Price | None = None
    settled: Request | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything there that carries this installation's id, all pages.

    `is_complete` is false where a page, a zone or a kind could not be read: then nothing may be
    taken for gone.
    """

    machines: tuple[Instance, ...]
    children: tuple[Child, ...]
    is_complete: bool = True
    calls_left: int | None = None  # of the provider's budget, where it says
    calls_most: int | None = None  # that whole budget


# --- the driver ---------------------------------------------------------------------------------


class Driver(Protocol):
    """One connection to one provider. Every method may raise `outcomes.Fault`."""

    @property
    def provider(self) -> str:
        """Its name: `hetzner`, `local`."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond the core."""
        ...

    @property
    def calls(self) -> Sequence[ApiCall]:
        """Every call it can make."""
        ...

    @property
    def lookup(self) -> LookupRules:
        """When absence may be believed."""
        ...

    async def validate(self) -> Validation:
        """Proves the credential and finds what is missing; creates nothing."""
        ...

    async def offer(self) -> Offer:
        """What can be ordered now, with prices where the provider tells them."""
        ...

    async def plan(self, request: Request) -> Plan:
        """Whether this request can work: names, network, image, quota, where things live."""
        ...

    async def create(self, request: Request) -> Created:
        """Sends the order, once. `Fault` with `UNKNOWN`: look up before anything else."""
        ...

    async def poll(self, created: Created) -> Progress:
        """How what was accepted is doing; a `Fault` of the poll itself is no end of it.

        Raises `Fault` with `NOT_DONE_*` only where the provider says that the order has failed.
        """
        ...

    async def find(self, owner: Owner, *, name: str, region: str) -> Sightings:
        """Whatever carries this operation's id, and what has this very name.

        An instance without our tags is given with `owner` None: a name proves nothing.
        """
        ...

    async def describe(self, ref: str, *, region: str) -> Instance | None:
        """The machine with its children; None where the provider says clearly that it is gone."""
        ...

    async def delete(self, ref: str, *, region: str) -> None:
        """Has it deleted; returns once that is accepted, or where it is gone already."""
        ...

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it."""
        ...

    async def inventory(self, installation: str) -> Inventory:
        """All of this installation's: what one refresh and the sweeper read."""
        ...

    async def describe_child(self, child: Child) -> Child | None:
        """The child as it is now; None where it is gone."""
        ...

    async def delete_child(self, child: Child) -> None:
        """Has it deleted; where it is in use yet: `NOT_DONE_RETRYABLE` with topic `STATE`."""
        ...

    async def create_child(
        self,
        kind: ChildKind,
        *,
        owner: Owner,
        name: str,
        region: str,
        size_gigabytes: int | None = None,
        of: str | None = None,
    ) -> Child:
        """A volume, a snapshot (`of` a machine or volume) or a stable address of our own."""
        ...

    async def attach(self, child: Child, *, to: str) -> None:
        """Gives the volume or address to the machine."""
        ...

    async def detach(self, child: Child) -> None:
        """Takes it away from whatever has it."""
        ...

    async def console(self, ref: str, *, region: str) -> str | None:
        """The end of what the machine's console showed; None where there is none."""
        ...

    async def close(self) -> None:
        """Gives connections back; may be repeated."""
        ...
