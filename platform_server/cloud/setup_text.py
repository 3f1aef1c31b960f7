"""What a person has to set up at the provider for a connection, as text to read and to paste.

The rights come from the driver's own table of calls, by feature, so that they are those which it
really uses. What is peculiar to a provider (a trust policy, a federated credential) its folder adds
in `policy_text.setup_text(facts)`; the facts are those of `facts_of`, all of them texts.
"""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.cloud import connections
from platform_server.cloud.issuer import signers
from provisioning import contract, credentials, providers

_TITLES: Final[Mapping[contract.Feature, str]] = {
    contract.Feature.CHECK: "to be checked",
    contract.Feature.CATALOG: "to see what can be ordered",
    contract.Feature.MACHINES: "for machines",
    contract.Feature.SSH: "for keys and port 22 (--ssh-key)",
    contract.Feature.VOLUMES: "for volumes",
    contract.Feature.SNAPSHOTS: "for snapshots",
    contract.Feature.ADDRESSES: "for stable addresses",
}


def facts_of(
    connection: connections.Connection,
    *,
    credential: credentials.Credential,
    issuer_url: str | None,
) -> Mapping[str, str]:
    """What a provider's text is made of: nothing secret in it."""
    facts = {
        "connection": connection.name,
        "provider": connection.provider,
        "kind": connection.credential_kind,
        "subject": signers.subject_of(connection.connection_id),
        "issuer_url": issuer_url or "",
        "external_id": connection.external_id or "",
        "account": connection.account,
        "principal": connection.principal,
    }
    settings = {str(name): str(value) for name, value in connection.settings.items()}
    return {**settings, **dict(credentials.shown(credential)), **facts}


def text_of(
    connection: connections.Connection,
    *,
    credential: credentials.Credential,
    calls: Sequence[contract.ApiCall],
    issuer_url: str | None,
    known: Mapping[str, str],
) -> str:
    """The whole text; empty for a provider that needs nothing. `known` are further facts."""
    row = providers.get(connection.provider)
    facts = facts_of(connection, credential=credential, issuer_url=issuer_url)
    parts = [
        _of_provider(row, {**facts, **known}),
        _rights(row, calls),
    ]
    return "\n\n".join(part for part in parts if part)


def _of_provider(row: providers.Provider, facts: Mapping[str, str]) -> str:
    name = f"{row.module.rpartition('.')[0]}.policy_text"
    if importlib.util.find_spec(name) is None:
        return ""
    function = getattr(importlib.import_module(name), "setup_text", None)
    return "" if function is None else str(function(facts)).strip()


def _rights(row: providers.Provider, calls: Sequence[contract.ApiCall]) -> str:
    """The rights by feature, each right once, at the first feature that needs it."""
    told: set[str] = set()
    lines: list[str] = []
    for feature in contract.Feature:
        rights = sorted({one.right for one in calls if one.feature is feature and one.right})
        fresh = [right for right in rights if right not in told]
        if fresh:
            told.update(fresh)
            lines.append(f"  {_TITLES[feature]}: {', '.join(fresh)}")
    if not lines:
        return ""
    return "\n".join([f"Rights that are needed ({row.title}):", *lines])
