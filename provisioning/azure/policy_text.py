"""What to set up at Azure for a connection, made from the table of calls.

Two roles: one on the resource group, with which machines are made and ended, and one at the
subscription that only reads, without which sizes and quota are not seen. An app registration proves
itself by our own issuer, by a file that somebody else keeps fresh, or by a client secret.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import contract, credentials, federation
from provisioning.azure import calls

EVERYTHING: Final = tuple(contract.Feature)
_MACHINES: Final = "Enlist machines"
_READER: Final = "Enlist sizes and quota"


def least_privilege(
    features: Iterable[contract.Feature] = EVERYTHING,
    *,
    subscription: str = "SUBSCRIPTION",
    resource_group: str = "RESOURCE-GROUP",
) -> Mapping[str, Mapping[str, Any]]:
    """The two role definitions, by name."""
    wanted = tuple(features)
    scope = f"/subscriptions/{subscription}"
    return {
        _MACHINES: _role(
            _MACHINES,
            "Makes and ends machines and what hangs on them in one resource group.",
            calls.rights_of(wanted, of_the_subscription=False),
            f"{scope}/resourceGroups/{resource_group}",
        ),
        _READER: _role(
            _READER,
            "Reads sizes, quota and regions of the subscription.",
            calls.rights_of(wanted, of_the_subscription=True),
            scope,
        ),
    }


def setup_text(facts: Mapping[str, str]) -> str:
    """What to do at Azure, as commands to paste. Nothing in it is a secret."""
    group = facts.get("resource_group") or "RESOURCE-GROUP"
    subscription = facts.get("subscription_id") or "SUBSCRIPTION"
    client = facts.get("client_id") or "CLIENT-ID"
    roles = least_privilege(subscription=subscription, resource_group=group)
    parts = [
        (
            "1. A resource group for these machines alone; it is never made for you:\n"
            f"   az group create --subscription {subscription} -n {group} -l LOCATION"
        ),
        "2. Two roles, given to the app registration:",
    ]
    for number, (name, role) in enumerate(roles.items(), start=1):
        scope = role["AssignableScopes"][0]
        parts.append(
            f"   Save as role-{number}.json:\n{json.dumps(role, indent=2)}\n"
            f"   az role definition create --role-definition @role-{number}.json\n"
            f'   az role assignment create --assignee {client} --role "{name}" --scope {scope}'
        )
    parts.append(f"3. {_proof(facts, client=client)}")
    return "\n\n".join(parts)


def _proof(facts: Mapping[str, str], *, client: str) -> str:
    kind = facts.get("kind", "")
    if kind == credentials.Kind.AZURE_FEDERATED:
        issuer = facts.get("issuer_url", "")
        if not issuer:
            return (
                "A federated credential needs the address of our own issuer, and it has none yet: "
                "set [cloud] issuer_url, then publish it: enlist cloud issuer export DIR"
            )
        told = {
            "name": "enlist",
            "issuer": issuer,
            "subject": facts.get("subject", ""),
            "audiences": [federation.AZURE_AUDIENCE],
        }
        return (
            "A federated credential of the app registration; Azure takes some minutes to believe "
            f"it:\n   az ad app federated-credential create --id {client} "
            f"--parameters '{json.dumps(told)}'"
        )
    if kind == credentials.Kind.AZURE_TOKEN_FILE:
        return (
            "Whoever writes the token file must be a federated credential of the app registration "
            f"(audience {federation.AZURE_AUDIENCE}). The file is read again for each exchange: "
            f"{facts.get('federated_token_file', 'FILE')}, which has to be below "
            "[cloud] token_folder"
        )
    return (
        f"A client secret, with an end that you will remember: az ad app credential reset --id "
        f"{client} --append --end-date DATE. A federated identity needs none: "
        "save the connection as kind azure-federated."
    )


def _role(name: str, about: str, actions: Iterable[str], scope: str) -> Mapping[str, Any]:
    return {
        "Name": name,
        "IsCustom": True,
        "Description": about,
        "Actions": list(actions),
        "NotActions": [],
        "AssignableScopes": [scope],
    }
