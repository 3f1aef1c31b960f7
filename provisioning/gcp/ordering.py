"""Ordering one machine: a rule for SSH where a key was given, then the one call that buys.

The same order sent again carries the same request id and gets the same operation back, so sending
it again is the look-up. Request ids, like names, are known to one zone only; the zone is part of
the order and never chosen anew.

An accepted order is not a machine yet: a sold-out zone or a spent quota is told by the operation
when it is done. An operation that cannot be asked just now says nothing about the order.
"""

import dataclasses
from typing import Any, Final

from provisioning import answers, contract, naming, outcomes
from provisioning.gcp import api as api_kit
from provisioning.gcp import bodies, calls, errors, places, reading

_RUNNING: Final = frozenset({"PENDING", "RUNNING"})


@dataclasses.dataclass(frozen=True, slots=True)
class Ordering:
    """Makes machines in one project."""

    api: api_kit.Api

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order. Raises `outcomes.Fault`."""
        zone = zone_of(request)
        addresses = await self._numbers(request)
        children = [self._disk(request, zone=zone)]
        if request.ssh is not None and request.ssh.sources:
            children.append(await self._rule(request, sources=request.ssh.sources))
        ref = f"zones/{zone}/instances/{request.name}"
        try:
            operation = await self.api.send(
                calls.INSERT,
                f"zones/{zone}/instances",
                params={"requestId": bodies.request_id(request.client_token)},
                body=self._body(request, zone=zone, addresses=addresses),
                hide=(request.first_boot,),
            )
        except outcomes.Fault as fault:
            if fault.code not in errors.THERE_ALREADY:
                raise
            raise await self._there_already(request, ref=ref) from None
        name = reading.text(operation, "name")
        if not name:
            raise answers.unanswered(calls.INSERT.name, "a success that names no operation")
        return contract.Created(
            ref=ref,
            progress=f"zones/{zone}/operations/{name}",
            children=tuple(children),
        )

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How the order is doing. A poll that fails says nothing about it."""
        try:
            ref = places.machine_of(created.ref).ref
            operation = None
            if created.progress is not None:
                progress = places.spot_of(created.progress)
                operation = await self.api.get(calls.OPERATION, progress.ref)
            if operation is None:  # forgotten: the machine itself knows
                return await self._of_the_machine(ref)
        except outcomes.Fault as fault:
            raise answers.of_asking(fault) from fault
        if reading.text(operation, "status") != "DONE":
            return contract.Progress.RUNNING
        failed = errors.of_an_operation(calls.INSERT.name, operation)
        if failed is not None:
            raise failed
        return contract.Progress.DONE

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By name in the usual zone, then by label and name in all; half an answer is none."""
        found: dict[str, contract.Instance] = {}
        zone = places.usual_zone(region)
        if zone is not None:
            told = await self.api.get(calls.GET, f"zones/{zone}/instances/{name}")
            if told is not None:
                seen = reading.instance_of(told)
                found[seen.ref] = seen
        wanted = f'(labels.{naming.OPERATION}="{owner.operation}") OR (name="{name}")'
        listed = await self.api.aggregated(calls.LIST, kind="instances", filtered=wanted)
        for one in listed.rows:
            seen = reading.instance_of(one)
            if seen.name == name or _is_of(seen.owner, owner):
                found.setdefault(seen.ref, seen)
        if found:
            return contract.Sightings(
                instances=tuple(found.values()), is_complete=listed.is_complete
            )
        zones = [zone] if zone is not None else []
        under_way = [one for one in zones if await self._is_under_way(one, name=name)]
        half = await self._half_made(owner, name=name, region=region, zone=zone)
        return contract.Sightings(
            instances=(half,) if half is not None else (),
            is_complete=listed.is_complete and not under_way,
        )

    def _body(
        self, request: contract.Request, *, zone: str, addresses: tuple[str, ...]
    ) -> dict[str, Any]:
        body = bodies.instance(request, zone=zone, addresses=addresses)
        source = bodies.image(request.image, project=self.api.project)
        body["disks"][0]["initializeParams"].update(source)
        for disk in body["disks"][1:]:
            disk["source"] = f"projects/{self.api.project}/{disk['source']}"
        return body

    async def _is_under_way(self, zone: str, *, name: str) -> bool:
        """Whether an order of this name is accepted and not done: then absent means nothing."""
        operations = await self.api.all_of(
            calls.OPERATIONS,
            f"zones/{zone}/operations",
            filtered='(operationType="insert") AND (status!="DONE")',
        )
        return any(
            reading.text(one, "targetLink").endswith(f"/instances/{name}")
            and reading.text(one, "status") in _RUNNING
            for one in operations
        )

    async def _half_made(
        self, owner: contract.Owner, *, name: str, region: str, zone: str | None
    ) -> contract.Instance | None:
        kind = contract.ChildKind
        refs = [
            (calls.GET_RULE, f"global/firewalls/{naming.child_name(owner, kind.SECURITY_GROUP)}")
        ]
        if zone is not None:
            disk = f"zones/{zone}/disks/{naming.child_name(owner, kind.DISK)}"
            refs.append((calls.GET_DISK, disk))
        children = []
        for call, ref in refs:
            told = await self.api.get(call, ref)
            if told is not None and reading.owner_of(told) == owner:
                children.append(reading.child_of(told))
        if not children:
            return None
        return contract.Instance(
            ref=f"zones/{zone or f'{region}-a'}/instances/{name}",
            name=name,
            region=region,
            power=contract.Power.FAILED,
            raw_state="never made",
            owner=owner,
            children=tuple(children),
            failure="Parts of the machine were made and the machine itself was not.",
            failure_code="half-made",
        )

    async def _rule(self, request: contract.Request, *, sources: tuple[str, ...]) -> contract.Child:
        kind = contract.ChildKind.SECURITY_GROUP
        name = naming.child_name(request.owner, kind)
        ref = f"global/firewalls/{name}"
        body = bodies.rule(request, name=name, sources=sources)
        try:
            await self.api.send(calls.INSERT_RULE, "global/firewalls", body=body)
        except outcomes.Fault as fault:
            if fault.code not in errors.THERE_ALREADY:
                raise
            there = await self.api.get(calls.GET_RULE, ref)
            if there is not None and reading.owner_of(there) != request.owner:
                raise
        return contract.Child(kind=kind, ref=ref, name=name, owner=request.owner)

    async def _numbers(self, request: contract.Request) -> tuple[str, ...]:
        """The stable addresses of the order by number."""
        numbers = []
        for ref in request.addresses:
            told = await self.api.get(calls.GET_ADDRESS, places.spot_of(ref).ref)
            if told is None:
                raise outcomes.Fault(
                    f"The address {ref} is not there.",
                    outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                    topic=outcomes.Topic.INPUT,
                )
            numbers.append(reading.text(told, "address"))
        return tuple(numbers)

    async def _there_already(self, request: contract.Request, *, ref: str) -> outcomes.Fault:
        there = await self.api.get(calls.GET, ref)
        if there is None:
            return outcomes.Fault(
                f"{ref} was there when it was to be made and is not there now.",
                outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
                topic=outcomes.Topic.STATE,
            )
        is_mine = reading.owner_of(there) == request.owner
        return outcomes.Fault(
            f"{ref} is there already and {'is this attempt' if is_mine else 'is not ours'}.",
            outcome=outcomes.Outcome.EXISTS_MINE if is_mine else outcomes.Outcome.EXISTS_FOREIGN,
            topic=outcomes.Topic.STATE,
            code="alreadyExists",
            ref=ref,
        )

    async def _of_the_machine(self, ref: str) -> contract.Progress:
        told = await self.api.get(calls.GET, ref)
        if told is None:
            raise outcomes.Fault(
                f"{ref} was accepted and is not there.",
                outcome=outcomes.Outcome.UNKNOWN,
                topic=outcomes.Topic.STATE,
            )
        power = reading.instance_of(told).power
        is_starting = power is contract.Power.STARTING
        return contract.Progress.RUNNING if is_starting else contract.Progress.DONE

    def _disk(self, request: contract.Request, *, zone: str) -> contract.Child:
        name = naming.child_name(request.owner, contract.ChildKind.DISK)
        return contract.Child(
            kind=contract.ChildKind.DISK,
            ref=f"zones/{zone}/disks/{name}",
            name=name,
            region=request.region,
            owner=request.owner,
            attached_to=f"zones/{zone}/instances/{request.name}",
        )


def zone_of(request: contract.Request) -> str:
    """The zone of this order; raises `outcomes.Fault` where none is named for a region untested."""
    zone = request.zone or places.usual_zone(request.region)
    if zone is None:
        raise outcomes.Fault(
            f"The region {request.region} was not tested, so its zone has to be named.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )
    return zone


def _is_of(seen: contract.Owner | None, owner: contract.Owner) -> bool:
    return seen is not None and (seen.installation, seen.operation) == (
        owner.installation,
        owner.operation,
    )
