"""Volumes, snapshots and stable addresses at Azure, and the parts of machines one by one.

Everything is asked for and deleted by its own name. What hangs on something yet is refused by Azure
and said to be in use: the caller tries again.

Known limit: a volume is given to a machine by writing the machine's list of volumes; two such
writes at once are told apart by Azure's own lock, and the later one is refused.
"""

import dataclasses
from typing import Any, Final

from provisioning import contract, naming, outcomes
from provisioning.azure import arm as arm_kit
from provisioning.azure import bodies, calls, places, reading

MOST_VOLUMES: Final = 64
_RULES: Final = "securityRules"
_KIND: Final = contract.ChildKind


@dataclasses.dataclass(frozen=True, slots=True)
class Children:
    """The things beside machines in one place."""

    arm: arm_kit.Arm
    place: places.Place

    async def describe(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now."""
        kind, path = self._found(child)
        thing = await self.arm.get(path, kind=kind)
        if thing is None:
            return None
        return dataclasses.replace(
            await self._read(kind, thing), kind=child.kind, keep=child.keep, hourly=child.hourly
        )

    async def delete(self, child: contract.Child) -> None:
        """Has it deleted. A group that is in use yet lets nothing in from then on."""
        kind, path = self._found(child)
        try:
            await self.arm.delete(path, kind=kind)
        except outcomes.Fault as fault:
            if kind == calls.GROUP and fault.topic is outcomes.Topic.STATE:
                await self._shut(path)
            raise

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
            call, kind_there = calls.PUT_DISK, calls.DISK
            body = bodies.disk(owner, region=region, size_gigabytes=size_gigabytes)
        elif kind is _KIND.SNAPSHOT and of is not None:
            call, kind_there = calls.PUT_SNAPSHOT, calls.SNAPSHOT
            body = bodies.snapshot(owner, region=region, of=await self._disk_of(of))
        elif kind is _KIND.ADDRESS:
            call, kind_there = calls.PUT_ADDRESS, calls.ADDRESS
            body = bodies.stable_address(owner, region=region)
        else:
            raise _refused(f"Azure cannot make a {kind} of this.")
        path = self.place.one(kind_there, name)
        there = await self.arm.get(path, kind=kind_there)
        if there is None:
            answer = await self.arm.put(call, path, kind=kind_there, body=body, only_new=True)
            there = answer.body
        elif naming.owner_of(reading.tags(there)) != owner:
            raise outcomes.Fault(
                f"{path} is there already and is not ours.",
                outcome=outcomes.Outcome.EXISTS_FOREIGN,
                topic=outcomes.Topic.STATE,
                ref=path,
            )
        return dataclasses.replace(await self._read(kind_there, there), kind=kind, keep=True)

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives it to the machine; done already is done."""
        to = self.place.same(to, of=calls.VM)
        _, ref = self._found(child)
        if child.kind is _KIND.ADDRESS:
            await self._set_address(await self._card_of(to), to=ref)
            return
        vm = await self._machine(to)
        disks = _disks(vm)
        if any(self._is(one, ref) for one in disks):
            return
        taken = {one.get("lun") for one in disks}
        lun = next((n for n in range(MOST_VOLUMES) if n not in taken), None)
        if lun is None:
            raise _refused(f"The machine has {MOST_VOLUMES} volumes already.")
        new = {
            "lun": lun,
            "createOption": "Attach",
            "deleteOption": "Detach",
            "managedDisk": {"id": ref},
        }
        await self._set_disks(to, [*disks, new])

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it; nothing having it is done."""
        kind, ref = self._found(child)
        thing = await self.arm.get(ref, kind=kind)
        if thing is None:
            return
        if child.kind is _KIND.ADDRESS:
            card = reading.card_of_address(thing, place=self.place)
            if card is not None:
                await self._set_address(card, to=None)
            return
        holder = reading.holder_of(thing, place=self.place)
        if holder is not None:
            disks = _disks(await self._machine(holder))
            await self._set_disks(holder, [one for one in disks if not self._is(one, ref)])

    def _found(self, child: contract.Child) -> tuple[str, str]:
        """Its kind and its path; raises `UnreadableRef` for the path of anything else."""
        kind = places.BESIDE.get(child.kind)
        if kind is None:
            raise _refused(f"Azure has no {child.kind} apart from its machine.")
        return kind, self.place.same(child.ref, of=kind)

    async def _shut(self, path: str) -> None:
        """Takes the rules out of a group that cannot be deleted yet."""
        group = await self.arm.get(path, kind=calls.GROUP)
        if group is None or not list(reading.rows(reading.inside(group, "properties"), _RULES)):
            return
        body: arm_kit.Body = {
            "location": group.get("location"),
            "tags": dict(reading.tags(group)),
            "properties": {_RULES: []},
        }
        await self.arm.put(calls.PUT_GROUP, path, kind=calls.GROUP, body=body, only_new=False)

    async def _read(self, kind: str, thing: reading.Body) -> contract.Child:
        holder = None
        if kind == calls.ADDRESS:
            card = reading.card_of_address(thing, place=self.place)
            nic = await self.arm.get(card, kind=calls.NIC) if card is not None else None
            holder = reading.holder_of(nic, place=self.place) if nic is not None else card
        return reading.child_of(
            thing,
            kind=kind,
            place=self.place,
            attached_to=holder,
            child_kind=reading.kind_of_disk(thing) if kind == calls.DISK else None,
        )

    async def _disk_of(self, ref: str) -> str:
        """The disk that a snapshot is taken of: the machine's own, or the volume itself."""
        kind, _ = self.place.parts(ref)
        if kind == calls.DISK:
            return self.place.same(ref)
        own, _ = reading.disk_refs(
            await self._machine(self.place.same(ref, of=calls.VM)), place=self.place
        )
        if own is None:
            raise _refused(f"{ref} has no disk of which a snapshot can be taken.")
        return own

    async def _machine(self, ref: str) -> arm_kit.Body:
        vm = await self.arm.get(ref, kind=calls.VM)
        if vm is None:
            raise _refused(f"{ref} is not there.")
        return vm

    async def _card_of(self, machine: str) -> str:
        vm = await self._machine(self.place.same(machine))
        cards = reading.interface_refs(vm, place=self.place)
        if not cards:
            raise _refused(f"{machine} has no network card of ours.")
        return cards[0]

    async def _set_disks(self, machine: str, disks: list[Any]) -> None:
        await self.arm.send(
            calls.PATCH_VM,
            machine,
            version=places.VERSIONS[calls.VM],
            body={"properties": {"storageProfile": {"dataDisks": disks}}},
        )

    async def _set_address(self, card: str, *, to: str | None) -> None:
        nic = await self.arm.get(card, kind=calls.NIC)
        if nic is None:
            raise _refused(f"{card} is not there.")
        inside = nic["properties"]["ipConfigurations"][0]["properties"]
        now = reading.known(reading.text(inside.get("publicIPAddress") or {}, "id"),
                            place=self.place)  # fmt: skip
        if now == to:
            return
        if to is not None and now is not None:
            raise _refused(f"The machine has the address {now} already; detach that first.")
        if to is None:
            inside.pop("publicIPAddress")
        else:
            inside["publicIPAddress"] = {"id": to, "properties": {"deleteOption": "Detach"}}
        await self.arm.put(calls.PUT_NIC, card, kind=calls.NIC, body=nic, only_new=False)

    def _is(self, disk: Any, ref: str) -> bool:
        told = reading.text(reading.inside(disk, "managedDisk"), "id")
        return reading.known(told, place=self.place) == ref


def _disks(vm: arm_kit.Body) -> list[Any]:
    storage = reading.inside(reading.inside(vm, "properties"), "storageProfile")
    return list(reading.rows(storage, "dataDisks"))


def _refused(sentence: str) -> outcomes.Fault:
    return outcomes.Fault(
        sentence, outcome=outcomes.Outcome.NOT_DONE_PERMANENT, topic=outcomes.Topic.INPUT
    )
