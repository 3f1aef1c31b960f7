"""Every setting of the Platform, frozen, with its default and its paragraph.

Nothing but values: where they come from is `layers`' part. A new setting is a field here with its
paragraph; docs/settings.md is compared with these by a test. Long because every section of the
settings file stands here, each short, so that a name is looked for in one place.
"""

import datetime
import ipaddress
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic import Field

from wire_protocol import agent_url, ids, mesh, pins

LOWEST_PORT = 1024
MAX_SOCKETS = 65_536
SMALLEST_MESH = 8
MAX_SESSIONS = 1_000_000
ENROLLMENT_PORT = 8444
GATEWAY_PORT = 8445
BUNDLE_PORT = 8446
MAX_GATEWAY_ADDRESSES = 16

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _port(value: int | None) -> int | None:
    if value is not None and value != 0 and value < LOWEST_PORT:
        raise ValueError(f"ports start at {LOWEST_PORT}; 0 means any free one")
    return value


Port = Annotated[int, Field(ge=0, le=65_535), pydantic.AfterValidator(_port)]
Scope = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Host = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:-]+$")]


GroupT = TypeVar("GroupT")


class Group(pydantic.BaseModel):
    """A section of the settings file."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _with_the_units_port(value: Any, *, port: int) -> Any:
    """A unit listens at the usual port unless another is named; what is misshapen is left alone."""
    if not isinstance(value, dict) or value.get("port") not in (None, ""):
        return value
    unit = pydantic.TypeAdapter(bool)
    try:
        is_on = unit.validate_python(value.get("unit", False))
    except pydantic.ValidationError:
        return value
    return {**value, "port": port} if is_on else value


def _require_the_units_port(group: GroupT, *, port: int | None, unit: bool) -> GroupT:
    if unit and port == 0:
        raise ValueError("port must be the one at which the unit listens, not 0")
    return group


class PlatformGroup(Group):
    """Who this Platform is."""

    node_id: str = "local"
    """The Platform's own node id. It can be neither issued, enrolled nor removed."""

    environment: Literal["dev", "test", "prod"] = "dev"
    """What this Platform is for. It is answered by `/platform`, stands in every audit entry, and
    chooses `config.<environment>.toml`. It is a label and a preset, never another code path."""

    infra: Scope = "default"
    """The scope of what is made without naming one."""

    public_url: str | None = None
    """The https address under which machines and people reach the API, where that is not the
    address it listens on (a reverse proxy, a name). It does not decide what the port itself speaks:
    on loopback without `api.tls_cert_file` that stays http."""

    @pydantic.field_validator("node_id")
    @classmethod
    def _node_id(cls, value: str) -> str:
        return ids.parse_node_id(value)

    @pydantic.field_validator("public_url")
    @classmethod
    def _public_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("https://"):
            raise ValueError("a public address starts with https://")
        return None if value is None else value.rstrip("/")


class ApiGroup(Group):
    """The API: for people, the CLI and the dashboard."""

    listen: Annotated[str, Field(max_length=300)] = "127.0.0.1:8440"
    """HOST:PORT of the API; a port of 0 takes any free one. Beyond loopback it is https only."""

    tls_cert_file: str | None = None
    """A certificate chain of your own for the API, read again when it changes. Without it the
    Platform makes its own and clients pin its key."""

    tls_key_file: str | None = None
    """The private key beside `tls_cert_file`."""

    body_bytes: Annotated[int, Field(ge=1024, le=16_777_216)] = 1_048_576
    """The largest request body the API reads; a larger one is answered 413."""

    connections: Annotated[int, Field(ge=1, le=MAX_SOCKETS)] = 512
    """Connections the API holds at once. Beyond that new ones are closed at once."""

    event_readers: Annotated[int, Field(ge=1, le=1024)] = 64
    """How many readers may follow `/events` at once; the next one is answered 503."""

    @pydantic.model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file are given together or not at all")
        return self


class ListenGroup(Group):
    """Where the public ports listen."""

    addresses: Annotated[tuple[str, ...], Field(max_length=64)] = ("::", "0.0.0.0")  # noqa: S104 - a public port
    """The addresses that the enrollment port and the gateway bind. A family that this machine lacks
    is left out when the default stands; a narrower list is taken at its word."""

    @pydantic.field_validator("addresses")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one address")
        return tuple(str(ipaddress.ip_address(one)) for one in value)


class EnrollmentGroup(Group):
    """The enrollment listener, and the limits on enrolling."""

    port: Port | None = None
    """The public port at which machines enroll, usually 8444. Unset, it is off; 0 takes any free
    one. Turning it on turns dispatch on."""

    addresses: Annotated[tuple[Host, ...], Field(max_length=64)] = ()
    """The addresses and names under which machines reach this port. They become the names in its
    certificate and the first stands in join tokens. Without any: the first routable IPv4 address,
    IPv6 if there is one, and localhost."""

    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """How many listener processes share the port; TLS handshakes use that many cores."""

    attempts_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 120
    """How many failed attempts a minute are looked into across the whole Platform. Raising it
    raises the next two in proportion, unless they are set themselves."""

    failures_per_address: Annotated[int, Field(ge=1, le=1_000_000)] = 30
    """How many failed attempts a minute one address may make."""

    failures_per_token: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """How many failed attempts a minute one token id may see."""

    body_bytes: Annotated[int, Field(ge=4096, le=1_048_576)] = 65_536
    """The largest body of an enroll or trust request."""

    connections: Annotated[int, Field(ge=1, le=4096)] = 64
    """Requests in work per listener process. One more waits at most 2 s, then gets 503."""

    sockets: Annotated[int, Field(ge=16, le=MAX_SOCKETS)] = 1024
    """Open sockets per listener process. When full, the oldest without a complete head is
    closed."""

    trusted_proxies: Annotated[tuple[Network, ...], Field(max_length=256)] = ()
    """Networks whose PROXY protocol or `Forwarded` header says who the caller is. From anywhere
    else the caller is the peer of the socket."""

    agent_networks: Annotated[tuple[Network, ...], Field(max_length=256)] = ()
    """Where set, an Agent that listens must have its address in one of these networks."""

    authenticate: Literal["pins", "public-roots"] = "pins"
    """How machines authenticate this Platform. `public-roots` makes join tokens carry no pins,
    only trust key ids: for a Platform whose name is served by other people's TLS."""

    unit: bool = False
    """Whether the listener is a unit of its own beside this Platform, as the installer sets it up
    (`enlist-listener.service`). `enlist serve` then neither opens the port nor starts the listener,
    and takes the socket between the two from the service manager; `port` says where the listener
    is found, 8444 unless it is set."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _port_of_the_unit(cls, value: Any) -> Any:
        return _with_the_units_port(value, port=ENROLLMENT_PORT)

    @pydantic.model_validator(mode="after")
    def _unit_has_a_port(self) -> Self:
        return _require_the_units_port(self, port=self.port, unit=self.unit)


class BundlesGroup(Group):
    """The bundle server: where machines that have nothing but an address install from."""

    port: Port | None = None
    """The public port at which installer and bundles are served, usually 8446. Unset, it is off; 0
    takes any free one. It serves with the enrollment port's key, whether that port is on or not."""

    release_key_file: Annotated[str, Field(max_length=4096)] | None = None
    """The public key (PEM, Ed25519) that bundles must be signed with. Unset: the one that this
    installation came with, `release.pub` beside its releases."""

    most_bytes: Annotated[int, Field(ge=1_048_576, le=1_073_741_824)] = 134_217_728
    """The largest archive that is taken in."""

    build: bool = True
    """Whether a Platform that runs from a checkout and has no worker bundle of its version builds
    one, from its own code and the locked wheels."""

    sockets: Annotated[int, Field(ge=16, le=MAX_SOCKETS)] = 256
    """Open sockets of the bundle server. When full, the oldest without a complete head is closed;
    where all are downloads, the newcomer is turned away."""

    unit: bool = False
    """Whether the bundle server is a unit of its own (`enlist-bundles.service`), as `unit` of the
    enrollment listener; `port` is then 8446 unless it is set."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _port_of_the_unit(cls, value: Any) -> Any:
        return _with_the_units_port(value, port=BUNDLE_PORT)

    @pydantic.model_validator(mode="after")
    def _unit_has_a_port(self) -> Self:
        return _require_the_units_port(self, port=self.port, unit=self.unit)


class GatewayGroup(Group):
    """The gateway: where nodes that dial out hold their session."""

    port: Port | Literal["off"] | None = None
    """The public port of the gateway. Unset, it is 8445 where the enrollment port is on and off
    elsewhere; where the enrollment port is 0, any free one. `off` keeps it closed beside an open
    enrollment port: every node of this Platform then listens."""

    addresses: Annotated[tuple[Host, ...], Field(max_length=MAX_GATEWAY_ADDRESSES)] = ()
    """The addresses and names under which nodes reach the gateway. They stand in what the Platform
    signs and in the gateway's certificate; a node tries the one that worked last, then the others.
    Without any: those of the enrollment port that other machines can use."""

    sessions: Annotated[int, Field(ge=1, le=MAX_SESSIONS)] = 20_000
    """Sessions that one engine holds. One more is told to come again later."""

    handshakes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Handshakes in progress at once. Who comes meanwhile waits, each address in its turn."""

    handshakes_per_address: Annotated[int, Field(ge=1, le=4096)] = 16
    """How many of those one address may have."""

    heartbeat_seconds: Annotated[int, Field(ge=1, le=40)] = 30
    """How often a node sends its heartbeat. Both ends take 55 s of silence for a dead connection,
    so it cannot be rarer than every 40 s."""

    @pydantic.field_validator("port", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        if value is False:  # as a number it would be 0, any free port
            return "off"
        if not isinstance(value, str):
            return value
        text = value.strip().lower()
        if text != "off" and not text.isdecimal():
            raise ValueError("write a port, 0 for any free one, or off")
        return text


class AgentsGroup(Group):
    """What the Platform asks of Agents."""

    certificate_days: Annotated[int, Field(ge=1, le=3650)] = 90
    """For how many days an Agent makes its certificate. It renews by itself in the last third."""


class DispatchGroup(Group):
    """What the Platform tells Agents to run."""

    enabled: bool | None = None
    """Whether nodes may enroll and receive work. Unset, it follows the enrollment port. On
    without that port, the API serves the enroll and trust paths under the same limits."""


class MeshGroup(Group):
    """The WireGuard mesh between the Platform and its nodes."""

    enabled: bool = False
    """Whether there is one. The engine then needs root or CAP_NET_ADMIN, and `ip` and `wg`."""

    required: bool = True
    """Whether a node counts as ready only while it is connected to the mesh. Off, nodes get a place
    where they can, and do without where they cannot."""

    endpoint: Annotated[str, Field(max_length=300)] | None = None
    """HOST or HOST:PORT at which nodes reach the mesh's UDP port. Unset: the first address of the
    gateway, or of the enrollment port, that other machines can use."""

    port: Annotated[int, Field(ge=LOWEST_PORT, le=65_535)] = 51_820
    """The UDP port of the mesh."""

    network: Network | None = None
    """The network that addresses are given from, IPv6 or IPv4; the Platform has its first. Unset: a
    unique local IPv6 network, drawn at random once and kept. After a change every node gets another
    address when it next connects."""

    interface: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,13}[0-9]$")] = "enlist0"
    """The name of the Platform's interface, ending in a number. Where it is somebody else's, the
    next number is tried."""

    keepalive_seconds: Annotated[int, Field(ge=5, le=60)] = 25
    """How often a node that has nothing to say keeps its way through address translation open."""

    mtu: Annotated[int, Field(ge=1280, le=9000)] = 1280
    """The largest packet inside the mesh. 1280 passes almost everywhere; WireGuard adds up to 80
    bytes."""

    @pydantic.field_validator("network")
    @classmethod
    def _network(cls, value: Network | None) -> Network | None:
        if value is not None and value.num_addresses < SMALLEST_MESH:
            raise ValueError(f"the mesh needs a network of at least {SMALLEST_MESH} addresses")
        return value

    @pydantic.field_validator("endpoint")
    @classmethod
    def _endpoint(cls, value: str | None) -> str | None:
        if value is not None:
            mesh.parse_endpoint_or_host(value, port=1)
        return value


class AuditGroup(Group):
    """How much of the past is kept."""

    enrollment_entries: Annotated[int, Field(ge=10, le=100_000)] = 500
    """Entries of refused and invalid enrollment attempts; the oldest go first."""

    enrollment_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days for which refused and invalid enrollment attempts are kept."""

    action_days: Annotated[int, Field(ge=1, le=36_500)] = 365
    """Days for which the log of actions is kept. The hash of the last entry removed stays, so
    that the chain can still be verified from there."""

    event_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days for which events can be read again."""


class OperationsGroup(Group):
    """How long each part of an operation on a node may take."""

    ready_seconds: Annotated[float, Field(ge=1, le=86_400)] = 120
    """How long a node whose turn it is may take to be ready."""

    staging_seconds: Annotated[float, Field(ge=1, le=7 * 86_400)] = 1800
    """How long a node may take to fetch a release and to put it in its place."""

    restart_seconds: Annotated[float, Field(ge=1, le=86_400)] = 180
    """How long after that the release may take to be heard. A machine whose release does not come
    up rolls back by itself within a minute."""

    settle_seconds: Annotated[float, Field(ge=0, le=3600)] = 25
    """How long after a release is in its place the node may still be heard with the one before.
    After that, a node that was restarted and tells the one before has rolled back."""

    healthy_seconds: Annotated[float, Field(ge=0, le=3600)] = 15
    """For how long a new release has to run before its node takes work again. A machine judges for
    ten seconds whether it stays."""


class CloudGroup(Group):
    """Machines from providers: with what, for how long, and what may be cleaned up."""

    credential_policy: Literal["federated", "compat"] = "federated"
    """Which credentials are taken. `federated` refuses AWS keys, Azure client secrets and GCP keys,
    since those providers can do without a stored secret; `compat` takes them, their age shown."""

    policy_file: Annotated[str, Field(max_length=4096)] | None = None
    """The operator's policy (JSON): locations, image, classes, the most machines and the most
    money. Every provider that costs money needs it. Read again when it changes. Also given by
    `ENLIST_CLOUD_POLICY`."""

    allow_endpoints: bool = False
    """Whether a connection may name another address in place of its provider's: for a private cloud
    and for tests. Its credential is sent there."""

    issuer_url: Annotated[str, Field(max_length=2048)] | None = None
    """The public https address under which the documents of this Platform's own issuer can be read,
    `enlist cloud issuer export DIR`. Needed for credentials that federate."""

    token_folder: Annotated[str, Field(max_length=4096, pattern="^/")] | None = None
    """The folder below which files with federated tokens may be that a connection names
    (`azure-token-file`). Unset, no such file is read."""

    launch_seconds: Annotated[float, Field(ge=1, le=86_400)] = 900
    """How long a provider may take from the order until the machine runs."""

    enrollment_seconds: Annotated[float, Field(ge=1, le=86_400)] = 1200
    """How long a machine that runs may take until its node is ready."""

    auto_destroy_failed_after: Annotated[float, Field(ge=60, le=30 * 86_400)] | None = None
    """After how many seconds a machine whose order has failed is deleted. Unset, it is kept for a
    person to look at, and costs money until somebody deletes it."""

    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    """How many times one order may try to create its machine."""

    breaker_failures: Annotated[int, Field(ge=1, le=100)] = 3
    """After how many failures in a row machines of one template are not ordered any more, until a
    person says so."""

    refresh_seconds: Annotated[float, Field(ge=10, le=86_400)] = 300
    """How often a provider is asked for what it holds of ours, by one list for all machines, while
    nothing is under way there. While a machine enlists itself it is asked every 30 s."""

    sweep_seconds: Annotated[float, Field(ge=60, le=30 * 86_400)] = 3600
    """How often what a provider holds of ours is compared with what is known here."""

    orphan_grace_seconds: Annotated[float, Field(ge=300, le=30 * 86_400)] = 3600
    """How long something must have been known as an orphan before it may be deleted."""

    orphans: Literal["report", "delete"] = "report"
    """What becomes of orphans: what carries this installation's id at a provider and belongs to
    nothing that is known here. `report` lists them with what they cost, `delete` deletes them after
    the grace; volumes, snapshots and addresses are only ever listed."""

    @pydantic.field_validator("issuer_url")
    @classmethod
    def _issuer_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("https://"):
            raise ValueError("an issuer's address starts with https://")
        return None if value is None else value.rstrip("/")


class LocalGroup(Group):
    """Machines on this very host, the provider `local`."""

    network: ipaddress.IPv4Network | Literal["off"] = ipaddress.IPv4Network("10.99.0.0/24")
    """The private network of the bridge that local machines are on; its first address is this
    host's. Where the Platform can make such machines and has a bundle port, it also listens there
    and its certificates name it. `off`: none are made here."""

    directory: Annotated[str, Field(max_length=200)] = "/var/lib/enlist/machines"
    """Where local machines have their disks. An installed Platform's root helper has its own."""

    images: Annotated[str, Field(max_length=200)] = "/var/cache/enlist/images"
    """Where the base images of local machines are kept, likewise."""

    bridge: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,14}$")] = "enlist-br0"
    """The bridge's name, likewise."""

    @pydantic.field_validator("network", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value


class ProbeGroup(Group):
    """Asking every listening node whether it is there."""

    interval_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 15
    """How often each node is asked; the moments are spread at random."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5
    """How long one answer may take."""

    concurrency: Annotated[int, Field(ge=1, le=1024)] = 32
    """How many nodes are asked at the same time."""

    failures: Annotated[int, Field(ge=1, le=100)] = 2
    """After how many questions without an answer a ready node is called unreachable."""


class StoreGroup(Group):
    """Where the state is kept."""

    database_url: Annotated[str, Field(max_length=2048)] | None = None
    """`sqlite:///PATH` or `postgresql://…`. Unset, SQLite in the data directory. A URL with a
    password belongs in a private file or in the environment, not on the command line."""

    busy_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5
    """How long a request waits for a locked store before it is answered 503."""


class LogGroup(Group):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious message that is written."""

    format: Literal["auto", "console", "json"] = "auto"
    """`console` for people, `json` for machines, `auto` for console on a terminal and JSON
    elsewhere."""


class ConfiguredNode(Group):
    """A node that the operator configured; it wins over any enrolled one of that id."""

    url: Annotated[str, Field(max_length=300)]
    """The https address of its Agent."""

    pin: str
    """The pin of its Agent's key, `sha256:` and 64 hex digits."""

    @pydantic.field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        agent_url.parse(value)
        return value

    @pydantic.field_validator("pin")
    @classmethod
    def _pin(cls, value: str) -> str:
        return pins.parse_pin(value)


class Settings(Group):
    """All settings."""

    platform: PlatformGroup = PlatformGroup()
    api: ApiGroup = ApiGroup()
    listen: ListenGroup = ListenGroup()
    enrollment: EnrollmentGroup = EnrollmentGroup()
    gateway: GatewayGroup = GatewayGroup()
    bundles: BundlesGroup = BundlesGroup()
    agents: AgentsGroup = AgentsGroup()
    dispatch: DispatchGroup = DispatchGroup()
    mesh: MeshGroup = MeshGroup()
    audit: AuditGroup = AuditGroup()
    operations: OperationsGroup = OperationsGroup()
    cloud: CloudGroup = CloudGroup()
    local: LocalGroup = LocalGroup()
    probe: ProbeGroup = ProbeGroup()
    store: StoreGroup = StoreGroup()
    log: LogGroup = LogGroup()
    nodes: Annotated[dict[str, ConfiguredNode], Field(max_length=10_000)] = Field(
        default_factory=dict
    )

    @property
    def dispatch_enabled(self) -> bool:
        """Whether nodes may enroll and receive work."""
        if self.dispatch.enabled is not None:
            return self.dispatch.enabled
        return self.enrollment.port is not None

    @property
    def gateway_port(self) -> int | None:
        """The gateway's port, 0 for any free one, None where it is off."""
        if self.gateway.port == "off" or not self.dispatch_enabled:
            return None
        if self.gateway.port is not None:
            return self.gateway.port
        if self.enrollment.port is None:
            return None
        return GATEWAY_PORT if self.enrollment.port else 0

    @property
    def action_retention(self) -> datetime.timedelta:
        """How long the log of actions is kept."""
        return datetime.timedelta(days=self.audit.action_days)
