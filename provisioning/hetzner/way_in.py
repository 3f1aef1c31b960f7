"""How a person comes in: by their public key, and through port 22 from the networks they name.

Such a server has a firewall of its own, since the networks are its order's; key and firewall are
named by the order, not the attempt, so that a later attempt takes them over. For machines that
nobody logs in to see `closed`.
"""

import base64
import binascii
import dataclasses
import hashlib
from typing import Any, Final

from provisioning import contract, naming, outcomes
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, children, closed, labels, reading, shapes

_KIND: Final = contract.ChildKind
MOST_SOURCES: Final = 100  # of one firewall rule


async def shut(api: api_kit.Api, child: contract.Child) -> None:
    """Takes port 22 out of a firewall that cannot be deleted yet."""
    path = f"/firewalls/{child.ref}/actions/set_rules"
    await api.send(calls.SET_RULES, path, body={"rules": _rules(())})


async def ensure_ssh_key(
    api: api_kit.Api, *, owner: contract.Owner, public_key: str
) -> contract.Child:
    """The project's entry of this key: made now, or whoever's it is already, and then his."""
    name = _name(owner, _KIND.SSH_KEY)
    body = {"name": name, "public_key": public_key, "labels": labels.of(owner)}
    try:
        told = await api.send(calls.CREATE_SSH_KEY, "/ssh_keys", body=body)
        return shapes.shaped(calls.CREATE_SSH_KEY, lambda: reading.ssh_key(told["ssh_key"]))
    except outcomes.Fault as fault:
        if fault.code != "uniqueness_error":
            raise
    found = await api.pages(
        calls.LIST_SSH_KEYS,
        "/ssh_keys",
        of="ssh_keys",
        params={"fingerprint": fingerprint(public_key)},
    )
    if not found:
        raise outcomes.Fault(
            f"The project holds another SSH key named {name}. Delete it there, then retry.",
            outcome=outcomes.Outcome.EXISTS_FOREIGN,
            topic=outcomes.Topic.STATE,
            code="uniqueness_error",
        )
    key = shapes.shaped(calls.LIST_SSH_KEYS, lambda: reading.ssh_key(found[0]))
    return dataclasses.replace(key, keep=not labels.is_same_order(key.owner, owner))


async def ensure_firewall(
    api: api_kit.Api, *, owner: contract.Owner, sources: tuple[str, ...]
) -> contract.Child:
    """A firewall that lets in nothing but port 22, and that from these networks alone."""
    name = _name(owner, _KIND.SECURITY_GROUP)
    body = {"name": name, "rules": _rules(sources), "labels": labels.of(owner)}
    return await children.made(api, _KIND.SECURITY_GROUP, calls.CREATE_FIREWALL, body, owner=owner)


def fingerprint(public_key: str) -> str:
    """The MD5 fingerprint by which the provider looks keys up.

    Raises:
        ValueError: this is no public key.
    """
    words = public_key.split()
    if len(words) < 2:
        raise ValueError("This is no public key like `ssh-ed25519 AAAA… name`.")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error as fault:
        raise ValueError("The public key's second word is not base64.") from fault
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))


def _name(owner: contract.Owner, kind: contract.ChildKind) -> str:
    return naming.child_name(dataclasses.replace(owner, attempt=1), kind)


def _rules(sources: tuple[str, ...]) -> list[dict[str, Any]]:
    rules = list(closed.RULES)
    if sources:
        ssh = {"protocol": "tcp", "port": "22", "source_ips": list(sources)}
        rules.append({"direction": "in", **ssh})
    return rules
