"""Ordering one machine: group, address, card, machine, each put under its own name, in this order.

Nothing is put over something that is there already. Where an earlier try of the same attempt got
part of the way, its parts are recognised by their tags and the chain goes on behind them; so the
same order sent again is safe, and is itself the look-up. A clear refusal takes the parts back, so
that it leaves nothing but its reason; what a kill leaves is found by name.

Known limit: the waits between the parts end after a minute; the order then counts as unknown and
goes on with the next try.
"""

import dataclasses
from typing import Any, Final

from provisioning import answers, client, contract, naming, outcomes
from provisioning.azure import arm as arm_kit
from provisioning.azure import bodies, calls, errors, places, reading
from runtime_kit import clock as clock_kit

_WAITS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_NOT_DONE: Final = frozenset(
    {outcomes.Outcome.NOT_DONE_PERMANENT, outcomes.Outcome.NOT_DONE_RETRYABLE}
)
_NO_TIME_TO_UNDO: Final = frozenset({outcomes.Topic.RATE, outcomes.Topic.NETWORK})
_UNDONE: Final = (
    contract.ChildKind.INTERFACE,
    contract.ChildKind.ADDRESS,
    contract.ChildKind.SECURITY_GROUP,
)
_OVER: Final = frozenset({"failed", "canceled"})
_OPERATION: Final = "azure-asyncoperation"


@dataclasses.dataclass(frozen=True, slots=True)
class Ordering:
    """Makes machines in one place."""

    arm: arm_kit.Arm
    place: places.Place
    clock: clock_kit.Clock

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order. Raises `outcomes.Fault`; a clear refusal takes the parts back first."""
        try:
            return await self._create(request)
        except outcomes.Fault as fault:
            if fault.outcome in _NOT_DONE and fault.topic not in _NO_TIME_TO_UNDO:
                await self._undo(request.owner)
            raise

    async def _create(self, request: contract.Request) -> contract.Created:
        owner, kind = request.owner, contract.ChildKind
        subnet = await self._subnet(request)
        group = self.place.child(owner, kind.SECURITY_GROUP)
        await self._make(calls.PUT_GROUP, calls.GROUP, group, bodies.security_group(request), owner)
        public = await self._public_address(request)
        card = self.place.child(owner, kind.INTERFACE)
        body = bodies.interface(
            request,
            subnet=subnet,
            group=group,
            public_address=public,
            stays=bool(request.addresses),
        )
        await self._make(calls.PUT_NIC, calls.NIC, card, body, owner)
        ref = self.place.one(calls.VM, request.name)
        answer = await self._machine(request, ref=ref, card=card)
        parts = self._parts(owner, machine=ref, region=request.region)
        has_address = public is not None and not request.addresses
        return contract.Created(
            ref=ref,
            progress=self.arm.path_of(answer.headers.get(_OPERATION)),
            children=tuple(one for one in parts if has_address or one.kind is not kind.ADDRESS),
            instance=reading.instance_of(answer.body, place=self.place),
        )

    async def _undo(self, owner: contract.Owner) -> None:
        """Ends the parts of an attempt whose machine was refused; what resists is found later."""
        for kind_of_child in _UNDONE:
            kind, path = places.CHAIN[kind_of_child], self.place.child(owner, kind_of_child)
            for wait in _WAITS:
                try:
                    thing = await self.arm.get(path, kind=kind)
                    if thing is None or _owner(thing) != owner:
                        break
                    await self.arm.delete(path, kind=kind)
                except outcomes.Fault as fault:
                    if fault.topic is not outcomes.Topic.STATE:
                        return  # whoever looks the attempt up finds what is left
                await self.clock.sleep(wait)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How the machine is doing. A poll that fails says nothing about the order."""
        try:
            ref = self.place.same(created.ref, of=calls.VM)
            told = None
            if created.progress is not None:
                told = await self.arm.operation(created.progress)
            if told is None:  # forgotten, or never told: the machine itself knows
                told = await self._as_operation(ref)
        except outcomes.Fault as fault:
            raise answers.of_asking(fault) from fault
        status = reading.text(told, "status").lower()
        if status == "succeeded":
            return contract.Progress.DONE
        if status in _OVER:
            if errors.read(told)[0] == errors.SLOW_TO_BOOT:
                return contract.Progress.DONE
            raise errors.of_an_operation(calls.PUT_VM.name, told)
        return contract.Progress.RUNNING

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By name first, which is never behind; the list only adds what other attempts left."""
        found: dict[str, contract.Instance] = {}
        ref = self.place.one(calls.VM, name)
        vm = await self.arm.get(ref, kind=calls.VM)
        for one in ([vm] if vm else []) + await self.arm.all_of(self.place, calls.VM):
            seen = reading.instance_of(one, place=self.place)
            is_ours = (
                seen.owner is not None
                and seen.owner.installation == owner.installation
                and seen.owner.operation == owner.operation
            )
            if is_ours and seen.owner is not None:
                parts = self._parts(seen.owner, machine=seen.ref, region=seen.region)
                seen = dataclasses.replace(seen, children=parts)
            if is_ours or seen.name == name:
                found.setdefault(seen.ref, seen)
        if not found:
            half = await self._half_made(owner, ref=ref, name=name, region=region)
            if half is not None:
                found[ref] = half
        return contract.Sightings(instances=tuple(found.values()))

    async def _half_made(
        self, owner: contract.Owner, *, ref: str, name: str, region: str
    ) -> contract.Instance | None:
        """Parts without a machine, asked for one by one: lists lag."""
        children = []
        for kind_of_child, kind in places.CHAIN.items():
            thing = await self.arm.get(self.place.child(owner, kind_of_child), kind=kind)
            if thing is not None and naming.owner_of(reading.tags(thing)) == owner:
                children.append(reading.child_of(thing, kind=kind, place=self.place))
        if not children:
            return None
        return contract.Instance(
            ref=ref,
            name=name,
            region=region,
            power=contract.Power.FAILED,
            raw_state="never made",
            owner=owner,
            children=tuple(children),
            failure="Parts of the machine were made and the machine itself was not.",
            failure_code="half-made",
        )

    async def _machine(self, request: contract.Request, *, ref: str, card: str) -> client.Answer:
        body = bodies.machine(request, place=self.place, interface_id=card)
        try:
            return await self.arm.put(
                calls.PUT_VM,
                ref,
                kind=calls.VM,
                body=body,
                only_new=True,
                hide=(request.first_boot, body["properties"]["osProfile"]["customData"]),
            )
        except outcomes.Fault as fault:
            if fault.code != errors.THERE_ALREADY:
                raise
            there = await self.arm.get(ref, kind=calls.VM)
            raise _there_already(there, request.owner, ref=ref) from None

    async def _public_address(self, request: contract.Request) -> str | None:
        if request.addresses:
            return self.place.same(request.addresses[0])
        if not request.public_ipv4:
            return None
        path = self.place.child(request.owner, contract.ChildKind.ADDRESS)
        body = bodies.address(request.owner, region=request.region)
        await self._make(calls.PUT_ADDRESS, calls.ADDRESS, path, body, request.owner)
        return path

    async def _subnet(self, request: contract.Request) -> str:
        """The subnet that was named, or the installation's own, made where it is missing."""
        if request.subnet is not None and request.subnet.startswith("/subscriptions/"):
            return request.subnet
        if request.network is not None:
            network = self.place.one(calls.NETWORK, request.network)
            return f"{network}/subnets/{request.subnet or 'default'}"
        name = bodies.network_name(request.owner, region=request.region)
        path = self.place.one(calls.NETWORK, name)
        if await self.arm.get(path, kind=calls.NETWORK) is None:
            body = bodies.network(request.owner, region=request.region)
            await self._make(calls.PUT_NETWORK, calls.NETWORK, path, body, None)
        return f"{path}/subnets/{bodies.SUBNET}"

    async def _make(
        self,
        call: contract.ApiCall,
        kind: str,
        path: str,
        body: dict[str, Any],
        owner: contract.Owner | None,
    ) -> None:
        """Puts one part and waits until others may stand on it; `owner` None: it is shared."""
        try:
            answer = await self.arm.put(call, path, kind=kind, body=body, only_new=True)
        except outcomes.Fault as fault:
            if fault.code != errors.THERE_ALREADY:
                raise
            there = await self.arm.get(path, kind=kind)
            if owner is not None and (there is None or _owner(there) != owner):
                raise _there_already(there, owner, ref=path) from None
            await self._settled(call, kind, path, there or {}, operation=None)
            return
        operation = self.arm.path_of(answer.headers.get(_OPERATION))
        await self._settled(call, kind, path, answer.body, operation=operation)

    async def _settled(
        self,
        call: contract.ApiCall,
        kind: str,
        path: str,
        thing: reading.Body,
        *,
        operation: str | None,
    ) -> None:
        for wait in _WAITS:
            state = reading.text(reading.inside(thing, "properties"), "provisioningState").lower()
            if state == "succeeded":
                return
            if state in _OVER:
                told = await self.arm.operation(operation) if operation is not None else None
                raise errors.of_an_operation(call.name, told)
            if wait:
                await self.clock.sleep(wait)
            thing = await self.arm.get(path, kind=kind) or {}
        raise outcomes.Fault(
            f"{call.name} was accepted and is not done after {sum(_WAITS):.0f} seconds.",
            outcome=outcomes.Outcome.UNKNOWN,
            topic=outcomes.Topic.STATE,
        )

    async def _as_operation(self, ref: str) -> dict[str, Any]:
        vm = await self.arm.get(ref, kind=calls.VM, params={"$expand": "instanceView"})
        if vm is None:
            gone = {"code": "Vanished", "message": "The machine was accepted and is not there."}
            return {"status": "Failed", "error": gone}
        seen = reading.instance_of(vm, place=self.place)
        if seen.power is contract.Power.FAILED:
            error = {"code": seen.failure_code, "message": seen.failure or ""}
            return {"status": "Failed", "error": error}
        return {"status": reading.text(reading.inside(vm, "properties"), "provisioningState")}

    def _parts(
        self, owner: contract.Owner, *, machine: str, region: str
    ) -> tuple[contract.Child, ...]:
        """What this attempt's machine is made with, whether it is there or not."""
        return tuple(
            contract.Child(
                kind=kind,
                ref=self.place.child(owner, kind),
                name=naming.child_name(owner, kind),
                region=region,
                owner=owner,
                attached_to=machine,
            )
            for kind in places.CHAIN
        )


def _owner(thing: reading.Body) -> contract.Owner | None:
    return naming.owner_of(reading.tags(thing))


def _there_already(
    there: reading.Body | None, owner: contract.Owner, *, ref: str
) -> outcomes.Fault:
    if there is None:  # refused as there, and then not there: in the middle of going
        return outcomes.Fault(
            f"{ref} was there when it was to be made and is not there now.",
            outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
            topic=outcomes.Topic.STATE,
            code=errors.THERE_ALREADY,
        )
    is_mine = _owner(there) == owner
    return outcomes.Fault(
        f"{ref} is there already and {'is this attempt' if is_mine else 'is not ours'}.",
        outcome=outcomes.Outcome.EXISTS_MINE if is_mine else outcomes.Outcome.EXISTS_FOREIGN,
        topic=outcomes.Topic.STATE,
        code=errors.THERE_ALREADY,
        ref=ref,
    )
