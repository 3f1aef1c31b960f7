"""Models of the cloud routes about machines, what hangs on or is kept beside them, and orphans.

A machine is ordered for a node id and is that node's until it is confirmed gone or forgotten.
"""

from typing import Annotated, Literal

import pydantic

from wire_protocol import admin, cloud
from wire_protocol import operations as operation_models

MOST_SNIPPET = 4000
MOST_DISK_GIGABYTES = 16_384
MOST_SSH_SECONDS = 7 * 86_400
LONGEST_KEY = 1024  # an RSA key of 4096 bits has 730 characters
_PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*$"
REF_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$"

Role = Literal["general", "build"]
Power = Literal["starting", "running", "stopping", "off", "deleting", "failed", "unknown"]
ChildKind = Literal[
    "disk", "volume", "snapshot", "address", "interface", "security-group", "ssh-key"
]
Name = Annotated[str, pydantic.Field(pattern=cloud.CONNECTION_PATTERN)]
Ref = Annotated[str, pydantic.Field(pattern=REF_PATTERN)]


class Ssh(admin.Request):
    """A person's key on the machine, and from where port 22 is reached for how long.

    Without `sources` nothing is opened.
    """

    public_key: Annotated[
        str,
        pydantic.Field(
            min_length=16,
            max_length=LONGEST_KEY,
            # One line: GCP's metadata, for one, takes the next for another person's key.
            pattern=r"^[a-z][a-z0-9@.-]* [A-Za-z0-9+/=]+( [^\x00-\x1f\x7f-\x9f]*)?$",
        ),
    ]
    sources: Annotated[
        list[Annotated[str, pydantic.Field(min_length=1, max_length=64)]],
        pydantic.Field(default_factory=list, max_length=16, description="Source networks (CIDR)."),
    ]
    seconds: Annotated[int, pydantic.Field(ge=60, le=MOST_SSH_SECONDS), admin.WHOLE] = 3600


class OrderMachine(admin.Request):
    """`POST /cloud/machines`: a machine that enlists itself as node `node_id`.

    Without `connection` the provider's only one; without `region` or `tier` what the catalogue
    offers first. `size` is a name of the provider's own, which takes `untested` where it was never
    tried. `image` is the provider's, or a snapshot of ours. `labels` are the node's. Where a
    provider leaves no choice of disk or public addresses the order ends before anything is bought.
    """

    node_id: admin.NodeIdField
    provider: cloud.Provider
    connection: cloud.ConnectionName | None = None
    region: cloud.Region | None = None
    tier: cloud.Size | None = None
    size: cloud.Size | None = None
    untested: bool = False
    image: Ref | None = None
    role: Role = "general"
    network: Ref | None = None
    subnet: Ref | None = None
    nested_virt: bool = False
    disk_gigabytes: Annotated[
        int | None, pydantic.Field(ge=1, le=MOST_DISK_GIGABYTES), admin.WHOLE
    ] = None
    public_ipv4: bool = True
    public_ipv6: bool = True
    first_boot: Annotated[
        str | None,
        pydantic.Field(
            min_length=1,
            max_length=MOST_SNIPPET,
            description="Joined to our first-boot data: a #cloud-config, or a script that begins "
            "with #!. It is kept as it is, so it must hold no secret.",
        ),
    ] = None
    labels: Annotated[admin.Labels, pydantic.Field(default_factory=dict)]
    ssh: Ssh | None = None
    purpose: Annotated[str | None, pydantic.Field(max_length=200, pattern=_PLAIN)] = None


class Child(admin.Answer):
    """What hangs on a machine, or is kept beside machines. `keep`: it goes with no machine."""

    child_id: str
    kind: ChildKind
    name: str
    labels: dict[str, str]
    connection: str
    provider: str
    region: str
    provider_ref: str | None
    node_id: str | None
    keep: bool
    address: str | None
    size_gigabytes: int | None
    price: cloud.Price | None
    present_at: admin.Moment | None
    delete_asked_at: admin.Moment | None
    gone_at: admin.Moment | None


class ChildList(admin.Answer):
    """`GET /cloud/volumes`, `/cloud/snapshots`, `/cloud/addresses`."""

    children: list[Child]
    next_cursor: str | None = None


class BootPhase(admin.Answer):
    """What first boot told of itself."""

    at: admin.Moment
    phase: str
    detail: str


class Machine(admin.Answer):
    """One machine, from its order to its confirmed end.

    `labels` are those that it was ordered with; what its node has by now, the node says.
    `state` is that of the operation which has it in hand, and `waiting` what is in that one's way
    since `waiting_since`; `power` is what the provider says as of `seen_at`. `still_billed` is true
    until the end is confirmed.
    """

    machine_id: str
    node_id: str
    infra: str
    provider: str
    connection: str
    operation_id: str
    state: operation_models.OperationState
    waiting: str | None = None
    waiting_since: admin.Moment | None = None
    region: str
    size: str
    image: str
    role: Role
    labels: dict[str, str]
    provider_ref: str | None
    provider_name: str | None
    power: Power
    addresses: list[str]
    seen_at: admin.Moment | None
    price: cloud.Price | None
    spent_micros: int
    still_billed: bool
    ordered_at: admin.Moment
    ordered_by: str
    present_at: admin.Moment | None
    active_at: admin.Moment | None
    delete_asked_at: admin.Moment | None
    gone_at: admin.Moment | None
    forgotten_at: admin.Moment | None
    forgotten_by: str | None


class MachineList(admin.Answer):
    """`GET /cloud/machines`, newest first."""

    machines: list[Machine]
    next_cursor: str | None = None


class MachineDetails(Machine):
    """`GET /cloud/machines/{machine}`: with what hangs on it and what first boot told."""

    children: list[Child]
    phases: list[BootPhase]


class Console(admin.Answer):
    """`GET /cloud/machines/{machine}/console`: the end of what it showed, as printable lines.

    `text` is null where its provider has none yet.
    """

    node_id: str
    text: str | None
    read_at: admin.Moment


class Ordered(admin.Answer):
    """What was begun: the machine, the operation to follow, and what it costs by the hour.

    `found`: nothing was begun, since the same was ordered for this node before.
    """

    machine: Machine
    operation: operation_models.Operation
    price: cloud.Price | None
    warnings: list[str]
    found: bool = False


class Begun(admin.Answer):
    """An operation that was begun; follow it to its end."""

    operation: operation_models.Operation


class CreateVolume(admin.Request):
    """`POST /cloud/volumes`."""

    name: Name
    connection: cloud.ConnectionName
    region: cloud.Region
    size_gigabytes: Annotated[int, pydantic.Field(ge=1, le=16_384), admin.WHOLE]
    labels: Annotated[admin.Labels, pydantic.Field(default_factory=dict)]


class CreateSnapshot(admin.Request):
    """`POST /cloud/snapshots`: of a machine, by its node id."""

    name: Name
    machine: admin.NodeIdField
    labels: Annotated[admin.Labels, pydantic.Field(default_factory=dict)]


class CreateAddress(admin.Request):
    """`POST /cloud/addresses`: a stable address."""

    name: Name
    connection: cloud.ConnectionName
    region: cloud.Region
    labels: Annotated[admin.Labels, pydantic.Field(default_factory=dict)]


class AttachRequest(admin.Request):
    """`POST /cloud/volumes/{resource}/attach`: to the machine of that node."""

    machine: admin.NodeIdField


class Orphan(admin.Answer):
    """What carries this installation's id at a provider and belongs to nothing that is known."""

    connection: str
    provider: str
    kind: str
    provider_ref: str
    name: str
    region: str
    operation_id: str
    price: cloud.Price | None
    made_at: admin.Moment | None
    first_seen_at: admin.Moment
    last_seen_at: admin.Moment
    delete_asked_at: admin.Moment | None


class OrphanList(admin.Answer):
    """`GET /cloud/orphans`."""

    orphans: list[Orphan]
    more: bool  # than one answer holds


class DeleteOrphan(admin.Request):
    """`POST /cloud/orphans/delete`: has one deleted at its provider."""

    connection: cloud.ConnectionName
    kind: Annotated[str, pydantic.Field(pattern=r"^[a-z][a-z-]{0,31}$")]
    provider_ref: Ref


class AdoptOrphan(admin.Request):
    """`POST /cloud/orphans/adopt`: that machine is the one of this node."""

    connection: cloud.ConnectionName
    provider_ref: Ref
    node_id: admin.NodeIdField


class ForgetRequest(admin.Request):
    """`POST /cloud/machines/{machine}/forget`: it is gone, or no longer ours; a person says so."""

    reason: Annotated[str, pydantic.Field(min_length=1, max_length=500, pattern=_PLAIN)]


class ResolveRequest(admin.Request):
    """`POST /operations/{id}/resolve`: what a person decides of an operation that is unresolved.

    `adopt`: that machine is ours (`provider_ref` says which, where several are possible); `retry`:
    there is none, order again; `give-up`: there is none, end it.
    """

    choice: Literal["adopt", "retry", "give-up"]
    provider_ref: Ref | None = None
