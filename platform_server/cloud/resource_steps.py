"""What operations on volumes, snapshots and addresses have in common: begin, do, end.

Each step asks the provider how things stand before it changes anything, so that whatever was done
and not written down is found: after a crash, a lost answer, a second engine.
"""

import dataclasses
import datetime
from typing import Final

from platform_server.cloud import beside, costs, pausing, using
from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract as store_contract
from provisioning import contract, outcomes
from runtime_kit import clock as clock_kit
from wire_protocol import problems

POLL_SECONDS: Final = 5.0
_TRANSIENT: Final = (
    outcomes.Outcome.UNKNOWN,
    outcomes.Outcome.NOT_DONE_RETRYABLE,
    outcomes.Outcome.AUTH_LOST,
    outcomes.Outcome.CLOCK,
)


WITHOUT_TAGS: Final = frozenset(
    {
        ("digitalocean", contract.ChildKind.ADDRESS),
        ("upcloud", contract.ChildKind.ADDRESS),
    }
)
"""What can carry neither our tags nor a name, so that no look-up ever proves it absent."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The parts that these kinds stand on."""

    store: store_contract.Store
    clouds: using.Clouds
    installation: str
    environment: str
    clock: clock_kit.Clock


class Kind:
    """One kind: `do` with a driver, again and again, until it moves to the end."""

    name = ""

    def __init__(self, means: Means) -> None:
        self.means = means

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
        operation, means = held.operation, self.means
        if operation.state is not states.State.RUNNING:
            await self.move(held, event=states.Event.BEGIN)
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
        await self.move(held, event=states.Event.FAIL, failure=failure)

    async def move(
        self,
        held: holding.Held,
        *,
        event: states.Event,
        failure: holding.Failure | None = None,
        detail: str = "",
    ) -> None:
        """Writes the change, with what `on_move` adds to it."""

        async def work(tx: store_contract.Tx) -> None:
            now = self.means.clock.now()
            await holding.begin(tx, held=held, event=event, now=now)
            await self.on_move(tx, held=held, event=event)
            await holding.move(
                tx,
                held=held,
                move=holding.Move(event=event, failure=failure, detail=detail),
                environment=self.means.environment,
                now=now,
            )

        await self.means.store.transact(work)

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """What is written in the transaction of the change."""


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


def carries_our_mark(
    found: contract.Child, *, resource: beside.Resource, installation: str
) -> bool:
    """Whether what a provider shows carries this installation's and this order's id."""
    owner = found.owner
    return owner is not None and (
        (owner.installation, owner.operation) == (installation, resource.operation_id)
    )


def require_ours(
    found: contract.Child, *, resource: beside.Resource, driver: contract.Driver, installation: str
) -> None:
    """Raises `kinds.Stop` for what another made: it is neither given, taken nor deleted.

    What can carry no mark is ours by the id that its provider answered our own order with.
    """
    if (driver.provider, found.kind) in WITHOUT_TAGS and found.owner is None:
        is_ours = resource.sent_at is not None
    else:
        is_ours = carries_our_mark(found, resource=resource, installation=installation)
    if not is_ours:
        raise kinds.Stop(
            f"At the provider the {resource.kind} {found.ref} does not carry the mark of our "
            f"order {resource.operation_id}, so it is not touched from here. Look at it in the "
            "provider's console.",
            kind=problems.Kind.NEEDS_OPERATOR,
        )


def is_under_way(fault: outcomes.Fault) -> bool:
    """Whether a provider says that it is busy with it and will have ended by and by."""
    return (fault.outcome, fault.topic) == (
        outcomes.Outcome.NOT_DONE_RETRYABLE,
        outcomes.Topic.STATE,
    )


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
