"""Volumes, snapshots and stable addresses at Google, and the parts of machines one by one.

Everything is asked for and deleted by its own name. What is in use is refused by Google and said to
be so: the caller tries again.

Known limits: a volume is in one zone, the region's usual one, and so must be its machine. Giving a
machine a stable address takes its old one away first; in between it has none for some seconds.
"""

import dataclasses
from typing import Final

from provisioning import contract, outcomes
from provisioning.gcp import api as api_kit
from provisioning.gcp import bodies, calls, errors, places, reading
from runtime_kit import clock as clock_kit

_KIND: Final = contract.ChildKind
_WAITS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_KINDS: Final = {
    _KIND.DISK: "disks",
    _KIND.VOLUME: "disks",
    _KIND.SNAPSHOT: "snapshots",
    _KIND.ADDRESS: "addresses",
    _KIND.SECURITY_GROUP: "firewalls",
}
_GETS: Final = {
    "disks": calls.GET_DISK,
    "snapshots": calls.GET_SNAPSHOT,
    "addresses": calls.GET_ADDRESS,
    "firewalls": calls.GET_RULE,
}
_DELETES: Final = {
    "disks": calls.DELETE_DISK,
    "snapshots": calls.DELETE_SNAPSHOT,
    "addresses": calls.DELETE_ADDRESS,
    "firewalls": calls.DELETE_RULE,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Children:
    """The things beside machines in one project."""

    api: api_kit.Api
    clock: clock_kit.Clock

    async def describe(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now."""
        spot = _beside(child)
        told = await self.api.get(_GETS[spot.kind], spot.ref)
        if told is None:
            return None
        seen = reading.child_of(told)
        return dataclasses.replace(
            seen,
            kind=child.kind,
            keep=child.keep,
            region=child.region or seen.region,
            hourly=child.hourly,
        )

    async def delete(self, child: contract.Child) -> None:
        """Has it deleted."""
        spot = _beside(child)
        await self.api.delete(_DELETES[spot.kind], spot.ref)

    async def create(
        self,
        kind: contract.ChildKind,
        *,
        owner: contract.Owner,
        name: str,
        region: str,
        size_gigabytes: int | None,
        of: str | None,
    ) -> contract.Child:
        """A new one under this very name, or the one that an earlier try of ours has made."""
        if kind is _KIND.VOLUME and size_gigabytes is not None:
            zone = places.usual_zone(region)
            if zone is None:
                raise _refused(f"The region {region} was not tested; no zone of it is known.")
            call, path = calls.INSERT_DISK, f"zones/{zone}/disks"
            body = bodies.disk(owner, name=name, zone=zone, size_gigabytes=size_gigabytes)
            ref = f"{path}/{name}"
        elif kind is _KIND.SNAPSHOT and of is not None:
            call, path = calls.SNAPSHOT, f"{await self._disk_of(of)}/createSnapshot"
            body, ref = bodies.snapshot(owner, name=name), f"global/snapshots/{name}"
        elif kind is _KIND.ADDRESS:
            call, path = calls.INSERT_ADDRESS, f"regions/{region}/addresses"
            body, ref = bodies.address(owner, name=name), f"{path}/{name}"
        else:
            raise _refused(f"Google cannot make a {kind} of this.")
        child = contract.Child(
            kind=kind,
            ref=ref,
            name=name,
            region=region,
            keep=True,
            owner=owner,
            size_gigabytes=size_gigabytes,
        )
        try:
            await self.api.send(call, path, body=body)
        except outcomes.Fault as fault:
            if fault.code not in errors.THERE_ALREADY:
                raise
            there = await self.describe(child)
            if there is not None and there.owner != owner:
                raise
        return child

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives it to the machine; done already is done."""
        machine, spot = places.machine_of(to).ref, _beside(child)
        told = await self._machine(machine)
        if child.kind is _KIND.ADDRESS:
            address = await self.api.get(calls.GET_ADDRESS, spot.ref)
            if address is None:
                raise _refused(f"{child.ref} is not there.")
            await self._set_address(machine, told, to=reading.text(address, "address"))
            return
        if any(one.ref == child.ref for one in reading.instance_of(told).children):
            return
        body = {
            "source": f"projects/{self.api.project}/{spot.ref}",
            "deviceName": places.last(child.ref),
            "autoDelete": False,
        }
        await self.api.send(calls.ATTACH_DISK, f"{machine}/attachDisk", body=body)

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it; an address is followed by one that is not stable."""
        seen = await self.describe(child)
        if seen is None or seen.attached_to is None:
            return
        told = await self.api.get(calls.GET, seen.attached_to)
        if told is None:
            return
        if child.kind is _KIND.ADDRESS:
            await self._set_address(seen.attached_to, told, to=None)
            return
        for one in reading.objects(told, "disks"):
            if places.behind_project(reading.text(one, "source")) == child.ref:
                params = {"deviceName": reading.text(one, "deviceName")}
                path = f"{seen.attached_to}/detachDisk"
                await self.api.send(calls.DETACH_DISK, path, params=params)

    async def _set_address(self, machine: str, told: api_kit.Body, *, to: str | None) -> None:
        now = reading.access_of(told)
        if now is None:
            raise _refused(f"{machine} has no network card.")
        card, access, number = now
        if to is not None and number == to:
            return
        if access:
            params = {"accessConfig": access, "networkInterface": card}
            path = f"{machine}/deleteAccessConfig"
            operation = await self.api.send(calls.DROP_ACCESS, path, params=params)
            await self._done(operation)
        await self.api.send(
            calls.ADD_ACCESS,
            f"{machine}/addAccessConfig",
            params={"networkInterface": card},
            body=bodies.access(address=to),
        )

    async def _done(self, operation: api_kit.Body) -> None:
        ref = places.behind_project(reading.text(operation, "selfLink"))
        for wait in _WAITS:
            if reading.text(operation, "status") == "DONE":
                failed = errors.of_an_operation(calls.DROP_ACCESS.name, operation)
                if failed is not None:
                    raise failed
                return
            if wait:
                await self.clock.sleep(wait)
            operation = await self.api.send(calls.OPERATION, ref)
        raise outcomes.Fault(
            f"{calls.DROP_ACCESS.name} is not done after {sum(_WAITS):.0f} seconds.",
            outcome=outcomes.Outcome.UNKNOWN,
            topic=outcomes.Topic.STATE,
        )

    async def _disk_of(self, ref: str) -> str:
        """The disk that a snapshot is taken of: the machine's own, or the volume itself."""
        spot = places.spot_of(ref)
        if spot.kind == "disks":
            return spot.ref
        seen = reading.instance_of(await self._machine(places.machine_of(ref).ref))
        own = next((one for one in seen.children if one.kind is _KIND.DISK), None)
        if own is None:
            raise _refused(f"{ref} has no disk of which a snapshot can be taken.")
        return own.ref

    async def _machine(self, ref: str) -> api_kit.Body:
        told = await self.api.get(calls.GET, ref)
        if told is None:
            raise _refused(f"{ref} is not there.")
        return told


def _beside(child: contract.Child) -> places.Spot:
    spot = places.spot_of(child.ref)
    if spot.kind != _KINDS.get(child.kind):
        raise outcomes.UnreadableRef(f"{child.ref!r} is no {child.kind} at Google.")
    return spot


def _refused(sentence: str) -> outcomes.Fault:
    return outcomes.Fault(
        sentence, outcome=outcomes.Outcome.NOT_DONE_PERMANENT, topic=outcomes.Topic.INPUT
    )
