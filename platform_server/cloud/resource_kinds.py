"""Carries operations on volumes, snapshots and addresses on: looked up first, done once, confirmed.

Each step asks the provider how things stand before it changes anything, so that whatever was done
and not written down is found: after a crash, a lost answer, a second engine. Making one is the
exception, since most providers take no key for it: that it was sent is committed before, and then
only a look-up (by our installation's and this operation's id) says whether it may be sent again.
"""

import dataclasses
import datetime
from typing import Final

from platform_server.cloud import beside, costs, machines, pausing, resources, using
from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract as store_contract
from provisioning import contract, naming, outcomes
from runtime_kit import clock as clock_kit
from wire_protocol import problems

POLL_SECONDS: Final = 5.0
LONGEST: Final = datetime.timedelta(hours=2)
"""How long a provider may take to show what it has accepted; a large snapshot takes most of one."""
_WITHOUT_TAGS: Final = frozenset(
    {
        ("digitalocean", contract.ChildKind.ADDRESS),
        ("upcloud", contract.ChildKind.ADDRESS),
    }
)
"""What can carry neither our tags nor a name, so that no look-up ever proves it absent."""
_TRANSIENT: Final = (
    outcomes.Outcome.UNKNOWN,
    outcomes.Outcome.NOT_DONE_RETRYABLE,
    outcomes.Outcome.AUTH_LOST,
    outcomes.Outcome.CLOCK,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The parts that these kinds stand on."""

    store: store_contract.Store
    clouds: using.Clouds
    installation: str
    environment: str
    clock: clock_kit.Clock


class _Kind:
    """What the four have in common: begin, do with a driver, end."""

    name = ""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def look(
        self, tx: store_contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        """There is always something to do, unless the connection is paused."""
        connection_id = str(operation.request["connection_id"])
        if await pausing.is_paused(tx, connection_id=connection_id, now=now):
            return kinds.Wait(seconds=pausing.LOOK_SECONDS)
        return kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """See `kinds.Kind.advance`."""
        operation, means = held.operation, self._means
        if operation.state is not states.State.RUNNING:
            await self._move(held, event=states.Event.BEGIN)
            return
        child_id = str(operation.request["child_id"])
        resource = await means.store.read(lambda tx: beside.get(tx, resource_id=child_id))
        try:
            async with means.clouds.driver(
                resource.connection_id,
                purpose=operation.kind,
                actor=operation.created_by,
                operation_id=operation.operation_id,
                changes=True,
            ) as driver:
                await self.do(held, resource=resource, driver=driver)
        except outcomes.Fault as fault:
            raise verdict_of(fault) from fault

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """The next thing, or the end; raises as `advance` does, and `outcomes.Fault`."""
        raise NotImplementedError

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """See `kinds.Kind.fail`."""
        await self._move(held, event=states.Event.FAIL, failure=failure)

    async def _move(
        self,
        held: holding.Held,
        *,
        event: states.Event,
        failure: holding.Failure | None = None,
        detail: str = "",
    ) -> None:
        async def work(tx: store_contract.Tx) -> None:
            now = self._means.clock.now()
            await holding.begin(tx, held=held, event=event, now=now)
            await self.on_move(tx, held=held, event=event)
            await holding.move(
                tx,
                held=held,
                move=holding.Move(event=event, failure=failure, detail=detail),
                environment=self._means.environment,
                now=now,
            )

        await self._means.store.transact(work)

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """What is written in the transaction of the change."""


class Create(_Kind):
    """Makes a volume, a snapshot or an address."""

    name = resources.CREATE

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Confirms it, looks it up, or sends for it: in this order."""
        if resource.provider_ref is not None:
            found = await driver.describe_child(resource.to_child())
            if found is None:
                raise self._not_shown(resource)
            found = await self._priced(driver, found)
            await self._keep(held, resource=resource, found=found)
            await self._move(held, event=states.Event.SUCCEED)
        elif resource.sent_at is not None:
            await self._look_up(held, resource=resource, driver=driver)
        else:
            await self._send(held, resource=resource, driver=driver)

    async def _send(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        owner = self._owner(resource)
        of = await self._ref_of(held)

        async def sent(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_sent(tx, child_id=resource.child_id, now=self._means.clock.now())

        await self._means.store.transact(sent)
        try:
            made = await driver.create_child(
                resource.kind,
                owner=owner,
                name=naming.name_of(owner),
                region=resource.region,
                size_gigabytes=resource.size_gigabytes,
                of=of,
            )
        except outcomes.Fault as fault:
            if fault.outcome is not outcomes.Outcome.UNKNOWN:
                await self._unsend(held, resource=resource)
            raise
        await self._keep(held, resource=resource, found=made)

    async def _look_up(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Whether what was sent is there; raises `TryLater` while nobody can say."""
        inventory = await driver.inventory(self._means.installation)
        for child in inventory.children:
            if child.kind is resource.kind and self._is_mine(child, resource=resource):
                await self._keep(held, resource=resource, found=child)
                return
        clean = resource.clean_answers + 1 if inventory.is_complete else 0
        rules, now = driver.lookup, self._means.clock.now()
        since = resource.sent_at or now
        if clean >= rules.clean_answers and now - since >= rules.settle:
            if (driver.provider, resource.kind) in _WITHOUT_TAGS:
                raise kinds.Stop(
                    f"Nobody knows whether the provider made the {resource.kind}, which can carry "
                    "no mark of ours there. Look at its console for one that nobody uses, then "
                    "forget this one: enlist cloud addresses forget " + resource.name,
                    kind=problems.Kind.NEEDS_OPERATOR,
                )
            await self._unsend(held, resource=resource)
            raise kinds.TryLater(
                f"The provider has not made the {resource.kind}; it is asked again."
            )

        async def note(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_clean_answers(tx, child_id=resource.child_id, count=clean)

        await self._means.store.transact(note)
        wait = rules.settle.total_seconds() / max(rules.clean_answers, 1)
        raise kinds.TryLater(
            f"Nobody knows yet whether the provider made the {resource.kind}: looking it up.",
            patient=True,
            seconds=max(wait, POLL_SECONDS),
        )

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """What failed and was proved not to be there is gone from the lists and from the bill."""
        if event is states.Event.FAIL:
            await tx.execute(
                "UPDATE cloud_children SET gone_at = ? WHERE child_id = ? "
                "AND provider_ref IS NULL AND sent_at IS NULL",
                clock_kit.to_micros(self._means.clock.now()),
                str(held.operation.request["child_id"]),
            )

    async def _priced(self, driver: contract.Driver, found: contract.Child) -> contract.Child:
        """With what it costs, where the provider tells that in its lists alone."""
        if found.hourly is not None or contract.Capability.PRICE not in driver.capabilities:
            return found
        inventory = await driver.inventory(self._means.installation)
        shown = [
            one for one in inventory.children if (one.kind, one.ref) == (found.kind, found.ref)
        ]
        return dataclasses.replace(found, hourly=shown[0].hourly) if shown else found

    def _not_shown(self, resource: beside.Resource) -> kinds.TryLater | kinds.Stop:
        now = self._means.clock.now()
        if now - (resource.present_at or now) < LONGEST:
            return kinds.TryLater(
                f"The provider does not show the {resource.kind} that it has accepted yet.",
                patient=True,
                seconds=POLL_SECONDS,
            )
        return kinds.Stop(
            f"The provider has accepted the {resource.kind} and does not show it.",
            kind=problems.Kind.NEEDS_OPERATOR,
        )

    def _owner(self, resource: beside.Resource) -> contract.Owner:
        return contract.Owner(
            installation=self._means.installation,
            infra=resource.infra,
            operation=resource.operation_id,
            node=resource.name,
            attempt=1,
        )

    def _is_mine(self, child: contract.Child, *, resource: beside.Resource) -> bool:
        owner = child.owner
        return owner is not None and (
            (owner.installation, owner.operation)
            == (self._means.installation, resource.operation_id)
        )

    async def _ref_of(self, held: holding.Held) -> str | None:
        """What a snapshot is taken of, as its provider names it."""
        machine_id = held.operation.request.get("of")
        if machine_id is None:
            return None
        machine = await self._means.store.read(
            lambda tx: machines.get(tx, machine_id=str(machine_id))
        )
        if machine.provider_ref is None or not machine.counts:
            raise kinds.Stop(f"The machine of {machine.node_id} is gone.")
        return machine.provider_ref

    async def _unsend(self, held: holding.Held, *, resource: beside.Resource) -> None:
        async def work(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_unsent(tx, child_id=resource.child_id)

        await self._means.store.transact(work)

    async def _keep(
        self, held: holding.Held, *, resource: beside.Resource, found: contract.Child
    ) -> None:
        """Its id, its price, and that it costs from the moment it was sent for."""
        now = self._means.clock.now()

        async def work(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_present(tx, child_id=resource.child_id, found=found, now=now)
            if found.hourly is not None:
                await charge(tx, resource=resource, price=found.hourly, now=now)

        await self._means.store.transact(work)


class Attach(_Kind):
    """Gives a volume or address to a machine."""

    name = resources.ATTACH

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Asks who has it, then has it given, then asks again."""
        machine_id = str(held.operation.request["machine_id"])
        machine = await self._means.store.read(lambda tx: machines.get(tx, machine_id=machine_id))
        if machine.provider_ref is None or not machine.counts:
            raise kinds.Stop(f"The machine of {machine.node_id} is gone.")
        found = await _described(driver, resource)
        if found.attached_to == machine.provider_ref:
            await self._move(held, event=states.Event.SUCCEED)
        elif found.attached_to is not None:
            raise kinds.Stop(
                f"At the provider the {resource.kind} hangs on {found.attached_to}: detach it "
                "there first."
            )
        else:
            await driver.attach(found, to=machine.provider_ref)
            raise under_way("attached")

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """It hangs on that machine from now on."""
        if event is states.Event.SUCCEED:
            request = held.operation.request
            await beside.set_machine(
                tx, child_id=str(request["child_id"]), machine_id=str(request["machine_id"])
            )


class Detach(_Kind):
    """Takes a volume or address away from whatever has it."""

    name = resources.DETACH

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Asks who has it, then has it taken away, then asks again."""
        found = await _described(driver, resource)
        if found.attached_to is None:
            await self._move(held, event=states.Event.SUCCEED)
        else:
            await driver.detach(found)
            raise under_way("detached")

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """It hangs on no machine."""
        if event is states.Event.SUCCEED:
            await beside.set_machine(
                tx, child_id=str(held.operation.request["child_id"]), machine_id=None
            )


class Delete(_Kind):
    """Deletes one, until its provider says that it is gone."""

    name = resources.DELETE

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Asks whether it is there and ours, then has it deleted, then asks again."""
        found = await driver.describe_child(resource.to_child())
        if found is None:
            await self._move(held, event=states.Event.SUCCEED)
            return
        owner = found.owner  # some providers let addresses carry no tag: those go by their id
        if owner is not None and owner.installation != self._means.installation:
            raise kinds.Stop(
                f"At the provider the {resource.kind} carries another installation's id, so it is "
                "not deleted from here.",
                kind=problems.Kind.NEEDS_OPERATOR,
            )
        if found.attached_to is not None:
            raise kinds.TryLater(
                f"At the provider the {resource.kind} hangs on {found.attached_to}."
            )
        await driver.delete_child(found)
        raise under_way("deleted")

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """It is gone, from the lists and from the bill."""
        child_id = str(held.operation.request["child_id"])
        now = self._means.clock.now()
        if event is states.Event.SUCCEED:
            await tx.execute(
                "UPDATE cloud_children SET gone_at = COALESCE(gone_at, ?), machine_id = NULL "
                "WHERE child_id = ?",
                clock_kit.to_micros(now),
                child_id,
            )
            await costs.end(tx, subject_id=child_id, until=now)


async def charge(
    tx: store_contract.Tx,
    *,
    resource: beside.Resource,
    price: contract.Price,
    now: datetime.datetime,
) -> None:
    """It costs that much from the moment it was sent for; where it costs already, from now on."""
    totals = await costs.total_of(tx, subject_ids=[resource.child_id], now=now)
    begun = resource.sent_at or resource.present_at or now
    await costs.begin(
        tx,
        charge=costs.Charge(
            subject_id=resource.child_id,
            connection_id=resource.connection_id,
            infra=resource.infra,
            what=resource.kind.value,
            price=price,
        ),
        since=now if totals else begun,
    )


def all_of(means: Means) -> tuple[kinds.Kind, ...]:
    """For the reconciler."""
    return (Create(means), Attach(means), Detach(means), Delete(means))


async def _described(driver: contract.Driver, resource: beside.Resource) -> contract.Child:
    found = await driver.describe_child(resource.to_child())
    if found is None:
        raise kinds.Stop(f"The provider says that the {resource.kind} {resource.name} is gone.")
    return found


def under_way(what: str) -> kinds.TryLater:
    """It was accepted, and is asked about until the provider says that it is done."""
    return kinds.TryLater(
        f"It is being {what}; the provider is asked until it says so.",
        patient=True,
        seconds=POLL_SECONDS,
    )


def verdict_of(fault: outcomes.Fault) -> kinds.TryLater | kinds.Stop:
    """What a fault means for the operation: what is sold out is tried so often and no more."""
    if fault.outcome in _TRANSIENT:
        wait = 0.0 if fault.retry_after is None else fault.retry_after.total_seconds()
        is_bounded = fault.topic in (outcomes.Topic.CAPACITY, outcomes.Topic.OTHER)
        return kinds.TryLater(str(fault), patient=not is_bounded, seconds=min(wait, 3600.0))
    return kinds.Stop(str(fault))
