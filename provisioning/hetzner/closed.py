"""The key and the firewall of machines that nobody logs in to: one pair for an installation.

Hetzner Cloud lets everything in by default and makes up a root password for a server without a key.
A pair for each server would end at the project's limits of keys and firewalls, so one serves all
that are ordered without a person's key: a key whose private half nobody holds, and a firewall that
lets in nothing but ICMP. What was opened in it by hand is shut before the next order.

Known limit: the pair stays when the last machine has gone. It costs nothing, belongs to no order,
and is made again by the next order if somebody takes it away.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from provisioning import contract, nobody, outcomes
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, children, labels, shapes

SHARED: Final = "enlist-shared"  # the label's name; its value is the installation
_KIND: Final = contract.ChildKind
RULES: Final[list[dict[str, Any]]] = [
    # too large a packet is told by ICMP, so that stays open
    {"direction": "in", "protocol": "icmp", "source_ips": ["0.0.0.0/0", "::/0"]}
]


async def ensure(api: api_kit.Api, *, installation: str) -> list[contract.Child]:
    """The pair, made on first use and shut again where it was opened; of no machine (`keep`).

    Raises `outcomes.Fault`: of the calls, or because the name is another's (`EXISTS_FOREIGN`).
    """
    name = f"enlist-{labels.safe(installation)}-nobody"
    of_ours = {"name": name, "labels": {SHARED: installation}}
    order = {**of_ours, "public_key": nobody.public_key()}
    key, _ = await _ensure(api, _KIND.SSH_KEY, calls.CREATE_SSH_KEY, order)
    wall, told = await _ensure(
        api, _KIND.SECURITY_GROUP, calls.CREATE_FIREWALL, {**of_ours, "rules": RULES}
    )
    if shapes.shaped(calls.LIST_FIREWALLS, lambda: _is_open(told["rules"])):
        path = f"/firewalls/{wall.ref}/actions/set_rules"
        await api.send(calls.SET_RULES, path, body={"rules": RULES})
    return [key, wall]


def _is_open(rules: Sequence[Mapping[str, Any]]) -> bool:
    return any(one["direction"] == "in" and one["protocol"] != "icmp" for one in rules)


async def _ensure(
    api: api_kit.Api,
    kind: contract.ChildKind,
    call: contract.ApiCall,
    body: Mapping[str, Any],
) -> tuple[contract.Child, Mapping[str, Any]]:
    found = await _find(api, kind, body)
    if found is None:
        try:
            told = await api.send(call, children.KINDS[kind].path, body=body)
            found = shapes.shaped(call, lambda: told[children.KINDS[kind].one])
        except outcomes.Fault as fault:
            if fault.code != "uniqueness_error":
                raise
            found = await _find(api, kind, body)  # by an order beside this one
            if found is None:
                raise
    child = shapes.shaped(call, lambda: children.KINDS[kind].read(found))
    return dataclasses.replace(child, keep=True), found


async def _find(
    api: api_kit.Api, kind: contract.ChildKind, body: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    row, name = children.KINDS[kind], body["name"]
    found = await api.pages(row.listing, row.path, of=row.many, params={"name": name})
    if not found:
        return None
    held = shapes.shaped(row.listing, lambda: dict(found[0]["labels"]))
    if held.get(SHARED) != body["labels"][SHARED]:
        raise outcomes.Fault(
            f"There is another {kind} named {name} in the project, and it is not ours. Give it "
            "another name there, then retry.",
            outcome=outcomes.Outcome.EXISTS_FOREIGN,
            topic=outcomes.Topic.STATE,
            code="uniqueness_error",
            ref=str(found[0]["id"]),
        )
    return found[0]
