"""Machines that are there: seen with what hangs on them, listed, restarted, deleted.

A deleted machine is shown as stopping until it is gone; only "not found" is gone. Lists over all
zones say which zones they lack, and such a list is never whole.
"""

import dataclasses
from collections.abc import Iterable
from typing import Final

from provisioning import contract, naming, outcomes
from provisioning.gcp import api as api_kit
from provisioning.gcp import calls, places, reading

MOST_CONSOLE: Final = 65_536
_PORT: Final = {"port": 1}
_PROTECTED: Final = ("deletion protection", "protected against deletion", "deletionprotection")


@dataclasses.dataclass(frozen=True, slots=True)
class Machines:
    """The machines of one project."""

    api: api_kit.Api

    async def describe(self, ref: str) -> contract.Instance | None:
        """The machine with its disks, and with its rule where it has one of ours."""
        told = await self.api.get(calls.GET, places.machine_of(ref).ref)
        if told is None:
            return None
        seen = reading.instance_of(told)
        if seen.owner is None or not told.get("tags", {}).get("items"):
            return seen  # without a tag no rule of ours fits it
        name = naming.child_name(seen.owner, contract.ChildKind.SECURITY_GROUP)
        rule = await self.api.get(calls.GET_RULE, f"global/firewalls/{name}")
        if rule is None or reading.owner_of(rule) != seen.owner:
            return seen
        child = dataclasses.replace(reading.child_of(rule), attached_to=seen.ref)
        return dataclasses.replace(seen, children=(*seen.children, child))

    async def delete(self, ref: str) -> None:
        """Has it deleted; a protection against that is said as what it is."""
        try:
            await self.api.delete(calls.DELETE, places.machine_of(ref).ref)
        except outcomes.Fault as fault:
            if not any(words in str(fault).lower() for words in _PROTECTED):
                raise
            raise outcomes.Fault(
                f"{ref} is protected against deleting. Take that off: gcloud compute instances "
                f"update {places.last(ref)} --no-deletion-protection",
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.PROTECTED,
                code=fault.code,
            ) from None

    async def reboot(self, ref: str) -> None:
        """Restarts it, as by its reset button."""
        await self.api.send(calls.RESET, f"{places.machine_of(ref).ref}/reset")

    async def console(self, ref: str) -> str | None:
        """The end of what its first serial port wrote."""
        path = f"{places.machine_of(ref).ref}/serialPort"
        told = await self.api.get(calls.CONSOLE, path, params=_PORT)
        return None if told is None else reading.text(told, "contents")[-MOST_CONSOLE:]

    async def inventory(self, installation: str) -> contract.Inventory:
        """Everything with this installation's label, over all zones and pages of every kind."""
        ours = f'labels.{naming.INSTALLATION}="{installation}"'
        listed = await self.api.aggregated(calls.LIST, kind="instances", filtered=ours)
        machines = tuple(reading.instance_of(one) for one in listed.rows)
        is_complete = listed.is_complete
        rows: list[api_kit.Body] = []
        for call, kind in ((calls.LIST_DISKS, "disks"), (calls.LIST_ADDRESSES, "addresses")):
            more = await self.api.aggregated(call, kind=kind, filtered=ours)
            rows += more.rows
            is_complete = is_complete and more.is_complete
        rows += await self.api.all_of(calls.LIST_SNAPSHOTS, "global/snapshots", filtered=ours)
        rows += await self.api.all_of(calls.LIST_RULES, "global/firewalls")  # no labels to filter
        return contract.Inventory(
            machines=tuple(one for one in machines if _is_of(one.owner, installation)),
            children=tuple(_children(rows, machines, installation=installation)),
            is_complete=is_complete,
        )


def _children(
    rows: Iterable[api_kit.Body], machines: Iterable[contract.Instance], *, installation: str
) -> Iterable[contract.Child]:
    by_owner = {one.owner: one.ref for one in machines}
    for row in rows:
        child = reading.child_of(row)
        if not _is_of(child.owner, installation):
            continue
        if child.kind is contract.ChildKind.SECURITY_GROUP:
            child = dataclasses.replace(child, attached_to=by_owner.get(child.owner))
        yield child


def _is_of(owner: contract.Owner | None, installation: str) -> bool:
    return owner is not None and owner.installation == installation
