"""Finding, describing and ending machines at EC2.

Known limit: EC2 shows what is new, and forgets what is gone, a little late. "Not found" is believed
only after a minute of asking.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from provisioning import contract, outcomes
from provisioning.aws import account as account_kit
from provisioning.aws import calls, errors, groups, values
from runtime_kit import clock as clock_kit

HALF: Final = "half-made:"
"""Stands before the operation's id in the ref of a machine of which only group or key exist."""
_ASKED_AGAIN_AFTER: Final = (2, 4, 8, 16, 31)  # seconds; together just over a minute
_REF: Final = re.compile(r"i-[0-9a-f]{8,32}")
_CONSOLE_CHARACTERS: Final = 16_384
_DEVICES: Final = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")  # as EC2 advises for data


class Machines:
    """The machines of one connection."""

    def __init__(self, *, account: account_kit.Account, clock: clock_kit.Clock) -> None:
        self._account = account
        self._clock = clock

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By the operation's tag, and by the very name; a half-made one by what was made of it."""
        by_tag = await list_instances(self._account, values.of_operation(owner), region=region)
        by_name = await list_instances(self._account, values.filters(tag_Name=name), region=region)
        seen = {one["InstanceId"]: one for one in [*by_tag, *by_name] if values.is_there(one)}
        instances = [values.instance_of(one, region=region) for one in seen.values()]
        if not instances:
            instances += await self._half_made(owner, name=name, region=region)
        return contract.Sightings(instances=tuple(instances))

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The machine; None where it is terminated, or not found for a minute."""
        if not _is_there(ref):
            return None
        found = await self._present(ref, region=region)
        if found is None or not values.is_there(found):
            return None
        instance = values.instance_of(found, region=region)
        if not values.has_stable_address(found):
            return instance
        told = await self._account.call(
            calls.ADDRESSES, region=region, Filters=values.filters(instance_id=ref)
        )
        addresses = [values.address_child(one, region=region) for one in told["Addresses"]]
        return with_children(instance, addresses)

    async def delete(self, ref: str, *, region: str) -> None:
        """Has it terminated. One that is not visible is asked for a minute before it is gone."""
        if not _is_there(ref):
            return
        try:
            await self._account.call(calls.TERMINATE, region=region, InstanceIds=[ref])
        except outcomes.Fault as fault:
            if fault.code not in errors.NOT_THERE:
                raise
            if await self._present(ref, region=region) is not None:
                await self._account.call(calls.TERMINATE, region=region, InstanceIds=[ref])

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it."""
        require(ref)
        await self._account.call(calls.REBOOT, region=region, InstanceIds=[ref])

    async def console(self, ref: str, *, region: str) -> str | None:
        """The end of its serial console; None where EC2 has none yet."""
        require(ref)
        told = await self._account.call(calls.CONSOLE, region=region, InstanceId=ref)
        output = told.get("Output")
        return str(output)[-_CONSOLE_CHARACTERS:] if output else None

    async def clear_half_made(self, owner: contract.Owner, *, region: str) -> None:
        """Takes away the group and key of an order that came to nothing.

        Where that fails they stay for the sweeper, which finds them by their tags.
        """
        for child in await self._own_children(owner, region=region):
            if child.kind is contract.ChildKind.SSH_KEY:
                await groups.delete_key(self._account, child.ref, region=region)
            else:
                await groups.close_group(self._account, child.ref, region=region)

    async def _half_made(
        self, owner: contract.Owner, *, name: str, region: str
    ) -> Sequence[contract.Instance]:
        children = await self._own_children(owner, region=region)
        if not children:
            return []
        return [
            contract.Instance(
                ref=f"{HALF}{owner.operation}",
                name=name,
                region=region,
                power=contract.Power.FAILED,
                raw_state="half-made",
                owner=owner,
                children=tuple(children),
                failure="Only what the machine was to stand on was made.",
            )
        ]

    async def _own_children(
        self, owner: contract.Owner, *, region: str
    ) -> Sequence[contract.Child]:
        wanted = values.of_operation(owner)
        found = await self._account.listed(
            calls.GROUPS, region=region, items="SecurityGroups", Filters=wanted
        )
        told = await self._account.call(calls.KEYS, region=region, Filters=wanted)
        return [
            *(values.group_child(one, region=region, owner=owner) for one in found),
            *(
                values.key_child(one["KeyName"], region=region, owner=owner)
                for one in told["KeyPairs"]
            ),
        ]

    async def _present(self, ref: str, *, region: str) -> Mapping[str, Any] | None:
        """The instance; None once it was not to be found for a minute of asking."""
        for seconds in (*_ASKED_AGAIN_AFTER, None):
            try:
                return await self.describe_once(ref, region=region)
            except outcomes.Fault as fault:
                if fault.code not in errors.NOT_THERE:
                    raise
            if seconds is not None:
                await self._clock.sleep(seconds)
        return None

    async def describe_once(self, ref: str, *, region: str) -> Mapping[str, Any]:
        """What EC2 shows of it now. Raises `Fault` (`InvalidInstanceID.NotFound`)."""
        told = await self._account.call(calls.INSTANCES, region=region, InstanceIds=[ref])
        found = [one for some in told["Reservations"] for one in some["Instances"]]
        if not found:
            raise outcomes.Fault(
                f"EC2 does not show {ref}.",
                outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
                topic=outcomes.Topic.STATE,
                code="InvalidInstanceID.NotFound",
            )
        return dict(found[0])


def require(ref: str) -> None:
    """Raises `UnreadableRef` for what is no instance's id."""
    outcomes.require_ref(_REF, ref, provider="Amazon EC2")


async def list_instances(
    account: account_kit.Account, wanted: list[dict[str, Any]], *, region: str
) -> list[Mapping[str, Any]]:
    """Every instance of these filters, terminated ones among them, each once."""
    found = account.pages(calls.INSTANCES, region=region, items="Reservations", Filters=wanted)
    by_id = {one["InstanceId"]: one async for some in found for one in some["Instances"]}
    return list(by_id.values())


async def attach_volume(
    account: account_kit.Account, volume: str, *, to: Mapping[str, Any], region: str
) -> None:
    """Gives the volume to the instance under the first device name that is free."""
    taken = {one.get("DeviceName") for one in to.get("BlockDeviceMappings") or []}
    free = next((name for name in _DEVICES if name not in taken), None)
    if free is None:
        raise outcomes.Fault(
            f"{to['InstanceId']} has {len(_DEVICES)} volumes already.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.QUOTA,
        )
    await account.call(
        calls.ATTACH_VOLUME,
        region=region,
        VolumeId=volume,
        InstanceId=to["InstanceId"],
        Device=free,
    )


async def associate(account: account_kit.Account, address: str, *, to: str, region: str) -> None:
    """Gives the address to the instance; one that another has is not taken from it."""
    told = await account.call(
        calls.ADDRESSES, region=region, Filters=values.filters(allocation_id=address)
    )
    if any(one.get("InstanceId") == to for one in told["Addresses"]):
        return
    await account.call(
        calls.ASSOCIATE,
        region=region,
        AllocationId=address,
        InstanceId=to,
        AllowReassociation=False,
    )


def with_children(
    instance: contract.Instance, further: Sequence[contract.Child]
) -> contract.Instance:
    """The instance with what else hangs on it."""
    held = {(one.kind, one.ref) for one in instance.children}
    new = tuple(one for one in further if (one.kind, one.ref) not in held)
    return dataclasses.replace(instance, children=instance.children + new)


def _is_there(ref: str) -> bool:
    """False for a machine that never came to be; raises `UnreadableRef`."""
    if ref.startswith(HALF):
        return False
    require(ref)
    return True
