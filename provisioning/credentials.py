"""What the Platform proves itself with at a provider: one frozen value a kind, parsed at the door.

A long-lived secret is refused under the policy `federated` where the provider can do without one;
where it cannot (a token is all there is) the kind stands under both policies. What goes into the
sealed column is `sealed_form`, and nothing else ever reveals a secret.

Known limit: a value says what a credential looks like; whether it works only the driver finds.
"""

import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import Any, Final

from runtime_kit import secret as secret_kit

MOST_BYTES: Final = 16_384
"""A service account's key is 2.4 KB; nothing that is pasted here is longer than this."""


class Kind(enum.StrEnum):
    """What a credential is made of; the word of settings, API and CLI."""

    NONE = "none"
    TOKEN = "token"  # noqa: S105 - a kind, no secret
    AWS_KEYS = "aws-keys"
    AWS_ROLE = "aws-role"
    AWS_WEB_IDENTITY = "aws-web-identity"
    AWS_AMBIENT = "aws-ambient"
    AZURE_SECRET = "azure-secret"  # noqa: S105 - a kind, no secret
    AZURE_FEDERATED = "azure-federated"
    AZURE_TOKEN_FILE = "azure-token-file"  # noqa: S105 - a kind, no secret
    GCP_KEY = "gcp-key"
    GCP_FEDERATED = "gcp-federated"
    UPCLOUD_TOKEN = "upcloud-token"  # noqa: S105 - a kind, no secret
    UPCLOUD_PASSWORD = "upcloud-password"  # noqa: S105 - a kind, no secret
    OPENSTACK_APPLICATION = "openstack-application"


class Unusable(Exception):
    """What was given is no credential of this kind; the message is a sentence without it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """For machines on this host."""

    kind = Kind.NONE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One static token (Hetzner, DigitalOcean, Linode, Vultr)."""

    kind = Kind.TOKEN
    token: secret_kit.Secret


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AwsKeys:
    """An access key; with `session_token` a temporary one; `role_arn` is assumed with it."""

    kind = Kind.AWS_KEYS
    access_key_id: str
    secret_access_key: secret_kit.Secret
    session_token: secret_kit.Secret | None = None
    role_arn: str = ""
    external_id: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AwsRole:
    """A role assumed from this host's own identity, with the ExternalId that we made."""

    kind = Kind.AWS_ROLE
    role_arn: str
    external_id: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AwsWebIdentity:
    """A role assumed with an assertion of our own issuer."""

    kind = Kind.AWS_WEB_IDENTITY
    role_arn: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AwsAmbient:
    """What this host finds by itself: instance profile, container role, environment."""

    kind = Kind.AWS_AMBIENT


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AzureSecret:
    """A service principal with its client secret."""

    kind = Kind.AZURE_SECRET
    tenant_id: str
    client_id: str
    subscription_id: str
    client_secret: secret_kit.Secret


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AzureFederated:
    """An app registration that believes our own issuer."""

    kind = Kind.AZURE_FEDERATED
    tenant_id: str
    client_id: str
    subscription_id: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AzureTokenFile:
    """An app registration that believes whoever writes this file; read anew for each exchange."""

    kind = Kind.AZURE_TOKEN_FILE
    tenant_id: str
    client_id: str
    subscription_id: str
    federated_token_file: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GcpKey:
    """A service account's key. Only these fields of a pasted document are ever used."""

    kind = Kind.GCP_KEY
    project_id: str
    client_email: str
    private_key_id: str
    private_key: secret_kit.Secret


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GcpFederated:
    """A workload identity pool that believes our own issuer; built of fields, never loaded."""

    kind = Kind.GCP_FEDERATED
    project_id: str
    project_number: str
    pool_id: str
    provider_id: str
    service_account: str = ""  # impersonated where given


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpcloudToken:
    """An API token of UpCloud."""

    kind = Kind.UPCLOUD_TOKEN
    token: secret_kit.Secret


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpcloudPassword:
    """A sub-account of UpCloud with its password."""

    kind = Kind.UPCLOUD_PASSWORD
    username: str
    password: secret_kit.Secret


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenstackApplication:
    """An application credential of OpenStack; where its Keystone is, stands in the settings."""

    kind = Kind.OPENSTACK_APPLICATION
    application_id: str
    application_secret: secret_kit.Secret


Credential = (
    Nothing
    | Token
    | AwsKeys
    | AwsRole
    | AwsWebIdentity
    | AwsAmbient
    | AzureSecret
    | AzureFederated
    | AzureTokenFile
    | GcpKey
    | GcpFederated
    | UpcloudToken
    | UpcloudPassword
    | OpenstackApplication
)

CLASSES: Final[Mapping[Kind, type[Credential]]] = {
    one.kind: one
    for one in (
        Nothing,
        Token,
        AwsKeys,
        AwsRole,
        AwsWebIdentity,
        AwsAmbient,
        AzureSecret,
        AzureFederated,
        AzureTokenFile,
        GcpKey,
        GcpFederated,
        UpcloudToken,
        UpcloudPassword,
        OpenstackApplication,
    )
}

LONG_LIVED: Final = frozenset({Kind.AWS_KEYS, Kind.AZURE_SECRET, Kind.GCP_KEY})
"""What `federated` refuses: kinds of providers that can be used without a stored secret."""

_SECRETS: Final = frozenset(
    {
        "token",
        "secret_access_key",
        "session_token",
        "client_secret",
        "private_key",
        "password",
        "application_secret",
    }
)
_DOCUMENT_NAMES: Final = {  # as the providers' own tools write them
    "tenantId": "tenant_id",
    "tenant": "tenant_id",
    "clientId": "client_id",
    "appId": "client_id",
    "subscriptionId": "subscription_id",
    "clientSecret": "client_secret",
}
_DOCUMENT_KINDS: Final = frozenset({Kind.AZURE_SECRET, Kind.GCP_KEY})


def fields_of(kind: Kind) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields this kind must have, and those that it may have."""
    fields = dataclasses.fields(CLASSES[kind])
    must = tuple(one.name for one in fields if one.default is dataclasses.MISSING)
    return must, tuple(one.name for one in fields if one.name not in must)


def is_secret(field: str) -> bool:
    """Whether this field is never shown; a client asks for it without echo."""
    return field in _SECRETS


def parse(kind: Kind, fields: Mapping[str, str]) -> Credential:
    """A credential of what a person gave.

    For `azure-secret` and `gcp-key` the field `document` may hold the JSON that the provider's own
    tool wrote; of it only the fields of the kind are taken, so no address in it is ever called.

    Raises:
        Unusable: a field is missing, unknown, empty or too long, or the document is no JSON.
    """
    given = dict(fields)
    document = given.pop("document", None)
    if document is not None:
        given = {**_of_document(kind, document), **given}
    must, may = fields_of(kind)
    for name, value in given.items():
        if name not in must and name not in may:
            raise Unusable(f"A credential of kind {kind} has no field {name!r}.")
        if len(value.encode()) > MOST_BYTES:
            raise Unusable(f"The field {name!r} is longer than {MOST_BYTES} bytes.")
        if name != "private_key" and not value.strip().isprintable():
            raise Unusable(f"The field {name!r} holds characters that cannot be printed.")
    missing = [name for name in must if not given.get(name, "").strip()]
    if missing:
        raise Unusable(f"A credential of kind {kind} also needs: {', '.join(missing)}.")
    return _made(kind, {name: value.strip() for name, value in given.items() if value.strip()})


def settings_of(kind: Kind, document: str) -> Mapping[str, str]:
    """What a pasted document says that belongs to the connection rather than to the credential.

    Raises:
        Unusable: the document is no JSON object, or too long.
    """
    told = _document(kind, document)
    names = {"resourceGroup": "resource_group", "resource_group": "resource_group"}
    if kind is not Kind.AZURE_SECRET:
        return {}
    return {
        ours: value
        for name, ours in names.items()
        if isinstance(value := told.get(name), str) and value.strip()
    }


def sealed_form(credential: Credential) -> bytes:
    """The credential as JSON bytes, secrets in it: to be sealed at once and never kept."""
    fields: dict[str, str] = {}
    for field in dataclasses.fields(credential):
        value = getattr(credential, field.name)
        if isinstance(value, secret_kit.Secret):
            fields[field.name] = value.reveal()
        elif value:
            fields[field.name] = value
    return json.dumps({"kind": credential.kind, **fields}, sort_keys=True).encode()


def from_sealed_form(data: bytes) -> Credential:
    """The credential that `sealed_form` wrote.

    Raises:
        Unusable: the bytes are none of its output.
    """
    try:
        fields: dict[str, str] = json.loads(data)
        return parse(Kind(fields.pop("kind")), fields)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise Unusable("What was stored is no credential.") from fault


def shown(credential: Credential) -> Mapping[str, str]:
    """The fields that may be shown: whatever is no secret."""
    return {
        field.name: getattr(credential, field.name)
        for field in dataclasses.fields(credential)
        if not is_secret(field.name) and getattr(credential, field.name)
    }


def _document(kind: Kind, document: str) -> dict[str, Any]:
    if kind not in _DOCUMENT_KINDS:
        raise Unusable(f"A credential of kind {kind} is given by fields, not as a document.")
    if len(document.encode()) > MOST_BYTES:
        raise Unusable(f"The document is longer than {MOST_BYTES} bytes.")
    try:
        told: Any = json.loads(document)
    except ValueError as fault:
        raise Unusable("The document is not JSON.") from fault
    if not isinstance(told, dict):
        raise Unusable("The document is not a JSON object.")
    return told


def _of_document(kind: Kind, document: str) -> dict[str, str]:
    told = _document(kind, document)
    if kind is Kind.GCP_KEY and told.get("type") != "service_account":
        raise Unusable(
            "The document is no service account's key (its type is not service_account); "
            "a workload identity pool is given by fields, as kind gcp-federated."
        )
    must, may = fields_of(kind)
    taken: dict[str, str] = {}
    for name, value in told.items():
        ours = _DOCUMENT_NAMES.get(name, name)
        if kind is Kind.AZURE_SECRET and name == "password":  # as `az ad sp create-for-rbac` does
            ours = "client_secret"
        if (ours in must or ours in may) and isinstance(value, str):
            taken[ours] = value
    return taken


def _made(kind: Kind, given: Mapping[str, str]) -> Credential:
    values: dict[str, Any] = {
        name: secret_kit.Secret(value) if is_secret(name) else value
        for name, value in given.items()
    }
    return CLASSES[kind](**values)
