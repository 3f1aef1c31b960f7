"""Models of the cloud routes about providers: connections, consents, catalogue, costs, the issuer.

Machines and what hangs on them are in `cloud_machines`. Money is in millionths of the currency's
unit; a price is by the hour. A credential is only ever sent, never answered: a connection shows its
kind and its age.
"""

import datetime
from typing import Annotated, Literal

import pydantic

from wire_protocol import admin

MOST_FIELDS = 16
LONGEST_FIELD = 8192  # a service account's key file is about 2,400 characters
LONGEST_SETTING = 512
MOST_MACHINES = 10_000
MOST_MICROS = 10**15

Provider = Literal[
    "aws", "azure", "digitalocean", "gcp", "hetzner", "linode", "local", "local-nspawn",
    "local-qemu", "openstack", "upcloud", "vultr",
]  # fmt: skip
CredentialKind = Literal[
    "token", "aws-keys", "aws-role", "aws-web-identity", "aws-ambient", "azure-secret",
    "azure-federated", "azure-token-file", "gcp-key", "gcp-federated", "upcloud-token",
    "upcloud-password", "openstack-application", "none",
]  # fmt: skip
CONNECTION_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_FIELD_NAME = r"^[a-z][a-z0-9_]{0,39}$"
_PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*$"  # shown on terminals, so no control characters

ConnectionName = Annotated[str, pydantic.Field(pattern=CONNECTION_PATTERN)]
Region = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Size = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Micros = Annotated[int, pydantic.Field(ge=0, le=MOST_MICROS), admin.WHOLE]
Currency = Annotated[str, pydantic.Field(pattern=r"^[A-Z]{3}$")]


class Price(admin.Answer):
    """By the hour. `as_of` is set where it is an estimate of that day, not the provider's word."""

    hourly_micros: int
    currency: str
    as_of: datetime.date | None = None
    monthly_cap_micros: int | None = None


class Total(admin.Answer):
    """What was spent so far in one currency, and what an hour costs now."""

    currency: str
    spent_micros: int
    hourly_micros: int


# --- connections --------------------------------------------------------------------------------


class Credential(admin.Request):
    """What proves who we are at the provider; which `fields` a kind takes, docs/cloud.md says."""

    kind: CredentialKind
    fields: Annotated[
        dict[
            Annotated[str, pydantic.Field(pattern=_FIELD_NAME)],
            Annotated[str, pydantic.Field(min_length=1, max_length=LONGEST_FIELD)],
        ],
        pydantic.Field(default_factory=dict, max_length=MOST_FIELDS, repr=False),
    ]


class SaveConnection(admin.Request):
    """`PUT /cloud/connections/{connection}`: kept once the credential has proved itself.

    For a connection that is there: another credential for the same account (a rotation), or other
    settings. The provider cannot change.
    """

    provider: Provider
    credential: Credential
    settings: Annotated[
        dict[
            Annotated[str, pydantic.Field(pattern=_FIELD_NAME)],
            Annotated[str, pydantic.Field(max_length=LONGEST_SETTING, pattern=_PLAIN)],
        ],
        pydantic.Field(
            default_factory=dict,
            max_length=MOST_FIELDS,
            description="Resource group, project, region.",
        ),
    ]


class Consent(admin.Answer):
    """What may be spent through a connection without asking a person each time."""

    most_machines: int
    most_hourly_micros: int
    currency: str
    expires_at: admin.Moment | None
    given_at: admin.Moment
    given_by: str


class ConsentRequest(admin.Request):
    """`PUT /cloud/connections/{connection}/consent`."""

    most_machines: Annotated[int, pydantic.Field(ge=1, le=MOST_MACHINES), admin.WHOLE]
    most_hourly_micros: Micros
    currency: Currency
    days: Annotated[
        int, pydantic.Field(ge=1, le=3650, description="For how long it holds."), admin.WHOLE
    ] = 90


class Checked(admin.Answer):
    """What a credential turned out to be and to be able to do, found without creating anything.

    `missing` are rights by the provider's own names, `unproved` those that only a use can prove.
    `room` is how many more machines the account allows, where the provider says.
    """

    ok: bool
    account: str
    principal: str
    missing: list[str]
    unproved: list[str]
    warnings: list[str]
    room: int | None
    checked_at: admin.Moment


class Connection(admin.Answer):
    """One named connection to one provider."""

    connection_id: str
    name: str
    infra: str
    provider: str
    state: Literal["ready", "paused"]
    paused_at: admin.Moment | None
    paused_reason: str | None
    settings: dict[str, str]
    credential_kind: str
    credential_at: admin.Moment
    external_id: str | None
    account: str
    principal: str
    capabilities: list[str]
    costs_money: bool
    machines: int
    totals: list[Total]
    last_check: Checked | None
    consent: Consent | None
    created_at: admin.Moment
    created_by: str


class ConnectionList(admin.Answer):
    """`GET /cloud/connections`."""

    connections: list[Connection]
    next_cursor: str | None = None


class SavedConnection(admin.Answer):
    """What was kept, what the check found, and what to set up at the provider, as text.

    `fits`: so many of the machines that were asked about fit into the account's limits; None where
    the provider does not say.
    """

    connection: Connection
    check: Checked
    setup: str
    fits: int | None


class Held(admin.Answer):
    """One thing of this installation that a provider holds: a machine, a volume, an address."""

    kind: str
    provider_ref: str
    name: str
    region: str
    state: str | None
    node_id: str | None
    operation_id: str | None


class Inventory(admin.Answer):
    """`POST /cloud/connections/{connection}/inventory`: what carries this installation's id there.

    Only what is `complete` says that there is no more. `calls_left` is what is left of the
    provider's budget of calls, where it says.
    """

    connection: str
    complete: bool
    held: list[Held]
    calls_left: int | None


# --- the catalogue ------------------------------------------------------------------------------


class Offered(admin.Answer):
    """One size in one region as it may be ordered now.

    `tier` is None for what was never tried, which takes `untested`. `withdrawn_after` is when the
    provider stops offering it; `reason` says why it cannot be ordered, where it cannot.
    """

    provider: str
    connection: str
    region: str
    tier: str | None
    size: str
    architecture: str
    cores: int
    memory_bytes: int
    disk_bytes: int
    nested_virt: bool
    price: Price | None
    tested: bool
    available: bool
    reason: str | None
    withdrawn_after: datetime.date | None
    advice: str | None = None


class Catalog(admin.Answer):
    """`GET /cloud/catalog`. `missing` says what stands in the way of a provider's offers."""

    offered: list[Offered]
    images: dict[str, list[str]]
    missing: list[str]


# --- what there is, and what it costs -----------------------------------------------------------


class ProviderFacts(admin.Answer):
    """One provider that this Platform can speak to, and what it has beyond plain machines."""

    provider: str
    title: str
    costs_money: bool
    credential_kinds: list[CredentialKind]
    available: bool
    missing: list[str]
    capabilities: list[str]


class Cloud(admin.Answer):
    """`GET /cloud`: what can be used, and what is missing for the rest."""

    available: bool
    missing: list[str]
    credential_policy: Literal["federated", "compat"]
    policy_file: str | None
    issuer_url: str | None
    providers: list[ProviderFacts]


class ConnectionCosts(admin.Answer):
    """What a connection costs and has cost, and how much of its caps is taken."""

    connection: str
    provider: str
    machines: int
    most_machines: int | None
    hourly_micros: int
    most_hourly_micros: int | None
    currency: str
    spent_micros: int


class MachineCosts(admin.Answer):
    """What a machine, or what is kept beside machines, costs and has cost."""

    subject_id: str
    what: str
    node_id: str | None
    connection: str
    hourly_micros: int
    currency: str
    spent_micros: int
    since: admin.Moment
    until: admin.Moment | None


class Costs(admin.Answer):
    """`GET /cloud/costs`."""

    connections: list[ConnectionCosts]
    subjects: list[MachineCosts]
    at: admin.Moment


class IssuerFile(admin.Answer):
    """One static file of our own OIDC issuer, and its path below the issuer's address."""

    path: str
    document: str


class Issuer(admin.Answer):
    """`GET /cloud/issuer`: what has to be readable at a public https address for federation."""

    url: str | None
    files: list[IssuerFile]
    signs_until: admin.Moment | None


class RotateIssuer(admin.Request):
    """`POST /cloud/issuer/rotate`: a further key; it signs once its documents may be published.

    `at_once`: the present key is feared to be in other hands. Assertions are refused then until the
    files were exported and published.
    """

    at_once: bool = False
