"""Machines that are there: seen with what hangs on them, listed, restarted, deleted.

Deleting asks for the machine alone: disk, card and address are flagged to go with it. That they are
gone is not believed until each was asked for by its own name; whoever deletes does that, from what
was recorded when they were made.

Known limit: Azure's list tells no power, so a refresh also asks for each of our own machines.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final

from provisioning import contract, naming, outcomes
from provisioning.azure import arm as arm_kit
from provisioning.azure import calls, places, reading

_POWER: Final = {"$expand": "instanceView"}
_BESIDE: Final = (calls.NIC, calls.ADDRESS, calls.GROUP, calls.DISK, calls.SNAPSHOT)


@dataclasses.dataclass(frozen=True, slots=True)
class Machines:
    """The machines of one place."""

    arm: arm_kit.Arm
    place: places.Place

    async def describe(self, ref: str) -> contract.Instance | None:
        """The machine with what hangs on it."""
        ref = self.place.same(ref, of=calls.VM)
        vm = await self.arm.get(ref, kind=calls.VM, params=_POWER)
        if vm is None:
            return None
        seen = reading.instance_of(vm, place=self.place)
        cards = {}
        for card in reading.interface_refs(vm, place=self.place):
            cards[card] = await self.arm.get(card, kind=calls.NIC)
        addresses = {}
        for nic in cards.values():
            for one in reading.address_refs(nic or {}, place=self.place):
                addresses[one] = await self.arm.get(one, kind=calls.ADDRESS)
        return self._whole(
            seen,
            vm,
            cards={name: nic for name, nic in cards.items() if nic is not None},
            addresses={name: one for name, one in addresses.items() if one is not None},
        )

    async def delete(self, ref: str) -> None:
        """Has it deleted, in whatever state it is."""
        await self.arm.delete(self.place.same(ref, of=calls.VM), kind=calls.VM)

    async def reboot(self, ref: str) -> None:
        """Restarts it."""
        path = f"{self.place.same(ref, of=calls.VM)}/restart"
        await self.arm.send(calls.RESTART_VM, path, version=places.VERSIONS[calls.VM])

    async def inventory(self, installation: str) -> contract.Inventory:
        """Everything with this installation's tag, over all pages of every kind."""
        ours = {
            self.place.one(calls.VM, reading.text(vm, "name")): vm
            for vm in await self.arm.all_of(self.place, calls.VM)
            if reading.tags(vm).get(naming.INSTALLATION) == installation
        }
        lists: dict[str, dict[str, reading.Body]] = {}
        is_complete = True
        for kind in _BESIDE:
            try:
                lists[kind] = self._by_ref(kind, await self.arm.all_of(self.place, kind))
            except outcomes.Fault as fault:
                if fault.topic is not outcomes.Topic.RIGHTS:
                    raise
                lists[kind], is_complete = {}, False
        machines = []
        for ref, vm in ours.items():
            now = await self.arm.get(ref, kind=calls.VM, params=_POWER)
            if now is None:
                continue  # gone since the list was made
            seen = reading.instance_of(now, place=self.place)
            machines.append(
                self._whole(seen, vm, cards=lists[calls.NIC], addresses=lists[calls.ADDRESS])
            )
        return contract.Inventory(
            machines=tuple(machines),
            children=tuple(self._children(lists, machines, installation=installation)),
            is_complete=is_complete,
            calls_left=self.arm.reads_left,
        )

    def _whole(
        self,
        seen: contract.Instance,
        vm: reading.Body,
        *,
        cards: Mapping[str, reading.Body],
        addresses: Mapping[str, reading.Body],
    ) -> contract.Instance:
        public: list[str] = []
        private: list[str] = []
        children: list[contract.Child] = []
        for card in reading.interface_refs(vm, place=self.place):
            if card not in cards:
                continue
            nic = cards[card]
            private += reading.private_addresses(nic)
            children.append(self._child(nic, calls.NIC, machine=seen))
            children += self._named(self._group_of(nic) or "", machine=seen)
            for ref in reading.address_refs(nic, place=self.place):
                if ref not in addresses:
                    continue
                child = self._child(addresses[ref], calls.ADDRESS, machine=seen)
                public += [child.address] if child.address else []
                children.append(child)
        own, attached = reading.disk_refs(vm, place=self.place)
        children += self._named(own or "", machine=seen)
        children += [
            contract.Child(
                kind=contract.ChildKind.VOLUME,
                ref=one,
                name=self.place.parts(one)[1],
                region=seen.region,
                keep=True,
                attached_to=seen.ref,
            )
            for one in attached
        ]
        return dataclasses.replace(
            seen,
            addresses=tuple(public),
            private_addresses=tuple(private),
            children=tuple(children),
        )

    def _named(self, ref: str, *, machine: contract.Instance) -> list[contract.Child]:
        """A part that was not read: it is this machine's where it has the name we gave it."""
        known = reading.known(ref, place=self.place)
        if known is None:
            return []
        kind, name = self.place.parts(known)
        given = machine.owner is not None and name == naming.child_name(
            machine.owner, places.KINDS[kind]
        )
        return [
            contract.Child(
                kind=places.KINDS[kind],
                ref=known,
                name=name,
                region=machine.region,
                keep=not given,
                attached_to=machine.ref,
                owner=machine.owner if given else None,
            )
        ]

    def _child(
        self, thing: reading.Body, kind: str, *, machine: contract.Instance
    ) -> contract.Child:
        child = reading.child_of(thing, kind=kind, place=self.place, attached_to=machine.ref)
        is_its = child.owner is not None and child.owner == machine.owner
        return dataclasses.replace(child, keep=not is_its)

    def _children(
        self,
        lists: Mapping[str, Mapping[str, reading.Body]],
        machines: list[contract.Instance],
        *,
        installation: str,
    ) -> list[contract.Child]:
        """All of ours beside machines; a disk that Azure left untagged is its machine's."""
        by_machine = {one.ref: one for one in machines}
        children = []
        for kind, things in lists.items():
            for thing in things.values():
                holder = self._holder(kind, thing, cards=lists[calls.NIC])
                child = reading.child_of(
                    thing,
                    kind=kind,
                    place=self.place,
                    attached_to=holder,
                    child_kind=reading.kind_of_disk(thing) if kind == calls.DISK else None,
                )
                machine = by_machine.get(holder or "")
                is_bare_disk = child.kind is contract.ChildKind.DISK and child.owner is None
                if is_bare_disk and machine is not None:
                    child = dataclasses.replace(child, owner=machine.owner)
                if child.owner is not None and child.owner.installation == installation:
                    children.append(child)
        return children

    def _holder(
        self, kind: str, thing: reading.Body, *, cards: Mapping[str, reading.Body]
    ) -> str | None:
        if kind == calls.ADDRESS:
            card = reading.card_of_address(thing, place=self.place)
            nic = cards.get(card or "")
            return reading.holder_of(nic, place=self.place) if nic is not None else card
        if kind == calls.GROUP:
            ref = self.place.one(kind, reading.text(thing, "name"))
            users = (one for one in cards.values() if self._group_of(one) == ref)
            return next((reading.holder_of(one, place=self.place) for one in users), None)
        return reading.holder_of(thing, place=self.place)

    def _group_of(self, nic: reading.Body) -> str | None:
        group = reading.inside(reading.inside(nic, "properties"), "networkSecurityGroup")
        return reading.known(reading.text(group, "id"), place=self.place)

    def _by_ref(self, kind: str, things: list[arm_kit.Body]) -> dict[str, reading.Body]:
        return {self.place.one(kind, reading.text(one, "name")): one for one in things}
