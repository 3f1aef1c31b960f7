"""Words about providers and credentials that a client needs before it asks anything.

Apart from `cloud`, whose models cost a command of the command line most of its time. That these
agree with the models and with `provisioning` is what tests/unit/wire_protocol/test_cloud_words.py
shows.
"""

from collections.abc import Mapping
from typing import Final

PROVIDERS: Final = (
    "local", "local-nspawn", "local-qemu", "hetzner", "digitalocean", "aws", "azure", "gcp",
    "upcloud", "linode", "vultr", "openstack",
)  # fmt: skip
CREDENTIAL_KINDS: Final = (
    "none", "token", "aws-web-identity", "aws-role", "aws-ambient", "aws-keys", "azure-federated",
    "azure-token-file", "azure-secret", "gcp-federated", "gcp-key", "upcloud-token",
    "upcloud-password", "openstack-application",
)  # fmt: skip
ROLES: Final = ("general", "build")
CHOICES: Final = ("adopt", "retry", "give-up")
ORPHAN_KINDS: Final = (
    "machine", "disk", "volume", "snapshot", "address", "interface", "security-group", "ssh-key",
)  # fmt: skip

SECRET_FIELD: Final[Mapping[str, str]] = {
    "token": "token",
    "aws-keys": "secret_access_key",
    "azure-secret": "client_secret",
    "gcp-key": "private_key",
    "upcloud-token": "token",
    "upcloud-password": "password",
    "openstack-application": "application_secret",
}
"""The field that a person is asked for without echo. A kind without one needs no secret."""

SECRETS: Final = frozenset({*SECRET_FIELD.values(), "session_token"})
DOCUMENT_KINDS: Final = frozenset({"azure-secret", "gcp-key"})
"""Kinds whose fields may come as the one JSON document that the provider's own tool wrote."""
DOCUMENT: Final = "document"
