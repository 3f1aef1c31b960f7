"""Trials of orders: lost answers, late appearances, quotas, races; on either store.

Each is a public report's kind of fault; its number is that of the lessons. A pocket provider stands
below, whose trouble is armed here; what each real provider answers is its own suite's.
"""

import asyncio
import datetime
import pathlib

import pytest

from platform_server.cloud import means, requests
from platform_server.store import contract
from provisioning import outcomes
from tests.support import domain, machine_orders
from tests.support.clouds import pocket


class Unlucky:
    """A store whose commits after a create call fail once."""

    def __init__(self, store: contract.Store, *, cloud: "list[pocket.Pocket]") -> None:
        self._store = store
        self._cloud = cloud
        self.failed = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def transact(self, work: contract.Work[object]) -> object:
        created = self._cloud and self._cloud[0].calls(pocket.CREATE)
        if created and not self.failed:
            self.failed += 1
            raise contract.StoreBusy("The store is busy.")
        return await self._store.transact(work)


async def test_b02_an_id_whose_commit_failed_is_looked_up_and_an_empty_answer_in_the_lag_is_no_no(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    platform = await domain.build(store, folder=tmp_path)
    clouds: list[pocket.Pocket] = []
    unlucky = Unlucky(store, cloud=clouds)
    cloud = pocket.Pocket(
        clock=platform.clock, rules=pocket.Rules(shows_late=40.0, settle=60.0, clean_answers=3)
    )
    engine = machine_orders.Engine(platform, cloud=cloud, store=unlucky)  # type: ignore[arg-type]
    clouds.append(cloud)
    made = await engine.order()
    await engine.until(made, "booting")
    assert unlucky.failed == 1
    assert len(cloud.calls(pocket.FIND)) >= 2  # at least one was empty
    await engine.to_active(made)
    assert len(cloud.ever()) == 1
    await machine_orders.require_standard(engine, mutating=1)


async def test_b04_a_machine_that_shows_late_is_waited_for(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(shows_late=90.0))
    made = await engine.order()
    await engine.until(made, "booting")
    await engine.carry_on(rounds=9)
    await engine.to_active(made)
    assert len(engine.cloud.ever()) == 1
    await machine_orders.require_standard(engine, mutating=1)


async def test_b06_a_machine_deleted_behind_our_back_is_retried_as_a_new_attempt(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, limits=means.Limits(attempts=1))
    made = await engine.order()
    await engine.until(made, "booting")
    await engine.carry_on(rounds=1)
    first = machine_orders.Guest(engine)
    engine.cloud.lose(first.ref)
    assert await engine.until(made, "failed") == "failed"
    await engine.retry(made)
    await engine.until(made, "booting")
    second = await engine.to_active(made)
    tried = await engine.tried(made)
    assert [one.state.value for one in tried] == ["gone", "present"]
    assert len({one.request.name for one in tried}) == 2
    assert len({one.request.client_token for one in tried}) == 2
    assert first.token.text() != second.token.text()
    await machine_orders.require_standard(engine, mutating=3)


async def test_b08_a_lost_answer_is_adopted_by_our_tags_and_never_sent_again(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(pocket.CREATE, pocket.lost(), done=True)
    made = await engine.order()
    guest = await engine.to_active(made)
    assert guest.ref == (await engine.machine(made)).provider_ref
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE]
    await machine_orders.require_standard(engine, mutating=1)


async def test_b08_a_matching_name_alone_is_never_adopted(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, limits=means.Limits(attempts=1))
    made = await engine.order()

    async def somebody_was_faster() -> None:
        (attempt,) = await engine.tried(made)
        engine.cloud.plant(None, name=attempt.request.name)
        engine.cloud.before.clear()

    engine.cloud.before[pocket.CREATE] = somebody_was_faster
    assert await engine.until(made, "failed") == "failed"
    assert (await engine.machine(made)).provider_ref is None
    assert len(engine.cloud.standing()) == 1  # the other's, untouched
    assert not engine.cloud.calls(pocket.DELETE)
    await machine_orders.require_standard(engine, mutating=1)


async def test_b12_polls_that_fail_end_no_order(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(progresses=True))
    engine.cloud.arm(pocket.POLL, *[pocket.lost() for _ in range(12)])
    engine.cloud.arm(
        pocket.POLL,
        pocket.refused(outcomes.Topic.NETWORK, later=True, code="unreachable"),
        pocket.refused(outcomes.Topic.RIGHTS, code="forbidden"),
    )
    engine.cloud.arm(pocket.DESCRIBE, *[pocket.lost() for _ in range(3)])
    made = await engine.order()
    await engine.until(made, "booting")
    await engine.carry_on(rounds=8)
    await engine.to_active(made)
    assert len(engine.cloud.ever()) == 1
    await machine_orders.require_standard(engine, mutating=1)


async def test_b14_what_looking_up_does_not_settle_is_a_persons_to_say_and_never_mute(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(pocket.CREATE, pocket.lost())
    engine.cloud.arm(pocket.FIND, *[pocket.lost() for _ in range(200)])
    made = await engine.order()
    assert await engine.until(made, "unresolved", rounds=120) == "unresolved"
    (tried,) = await engine.tried(made)
    waited = engine.platform.clock.now() - (tried.sent_at or engine.platform.clock.now())
    assert waited <= engine.means.limits.launch + datetime.timedelta(minutes=1)  # and not later
    found = await engine.stands(made)
    assert found.reason is not None
    assert "enlist operations resolve" in found.reason
    assert found.error_class is not None
    assert (await engine.machine(made)).counts
    await _resolve(engine, made, "retry")
    engine.cloud.trouble.clear()
    await engine.to_active(made)
    await machine_orders.require_standard(engine, mutating=2)


@pytest.mark.parametrize("choice", ["adopt", "give-up"])
async def test_b14_a_person_may_adopt_or_give_up(
    choice: requests.Choice, store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(pocket.CREATE, pocket.lost(), done=choice == "adopt")
    engine.cloud.arm(pocket.FIND, *[pocket.lost() for _ in range(200)])
    made = await engine.order()
    await engine.until(made, "unresolved", rounds=120)
    engine.cloud.trouble.clear()
    if choice == "give-up":
        await _resolve(engine, made, choice)
        assert await engine.state(made) == "failed"
        machine = await engine.machine(made)
        assert machine.forgotten_by == "local:0"
        await machine_orders.require_standard(engine, mutating=1, unseen_seconds=1800.0)
        return
    with pytest.raises(requests.WrongState):
        await _resolve(engine, made, choice)
    (there,) = engine.cloud.standing()
    await _resolve(engine, made, choice, ref=there["ref"])
    assert await engine.until(made, "booting", rounds=2) == "booting"
    assert (await engine.machine(made)).provider_ref == there["ref"]
    await engine.carry_on(rounds=4)  # what hangs on it is told by the next look
    assert await engine.state(made) == "booting"  # though its launch began long ago
    assert await machine_orders.Guest(engine).joins() == 201
    assert await engine.until(made, "active") == "active"
    await machine_orders.require_standard(engine, mutating=1)


async def test_b16_an_order_that_failed_after_it_was_accepted_is_no_orphan(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(progresses=True))
    made = await engine.order()
    await engine.until(made, "booting")
    (there,) = engine.cloud.standing()
    engine.cloud.lose(there["ref"])
    engine.cloud.arm(
        pocket.POLL, pocket.refused(outcomes.Topic.CAPACITY, later=True, code="no room")
    )
    assert await engine.until(made, "failed") == "failed"
    found = await engine.stands(made)
    assert found.reason is not None
    assert "capacity" in found.reason
    assert found.error_class is not None
    assert found.error_class.value == "transient"
    assert not (await engine.machine(made)).counts
    await machine_orders.require_standard(engine, mutating=1)


async def test_b18_a_cancel_while_it_boots_becomes_a_delete_that_is_confirmed(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    await engine.until(made, "booting")
    await machine_orders.Guest(engine).reports("fetching")
    await engine.until(made, "bootstrapping")
    engine.cloud.arm(pocket.DELETE, *[pocket.lost() for _ in range(3)])
    await engine.cancel(made)
    await engine.carry_on(rounds=3)
    assert await engine.state(made) == "cancelling"
    assert await engine.until(made, "cancelled", rounds=80) == "cancelled"
    assert not engine.cloud.standing()
    await machine_orders.require_standard(engine, mutating=6)


async def test_b64_a_delete_during_the_create_call_leaves_no_machine(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    asked: list[requests.Made] = []

    async def press_delete() -> None:
        engine.cloud.before.clear()
        asked.append(await engine.delete("web-1"))

    engine.cloud.before[pocket.CREATE] = press_delete
    made = await engine.order()
    assert await engine.until(made, "cancelled") == "cancelled"
    assert asked[0].operation.operation_id == made.operation.operation_id
    assert not engine.cloud.standing()
    assert len(engine.cloud.ever()) == 1
    await machine_orders.require_standard(engine, mutating=2)


async def test_b64_a_cancel_of_an_order_in_doubt_waits_until_it_is_settled(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(shows_late=100.0, settle=180, clean_answers=3)
    )
    engine.cloud.arm(pocket.CREATE, pocket.lost(), done=True)
    made = await engine.order()
    await engine.until(made, "creating")
    await engine.carry_on(rounds=2)
    await engine.cancel(made)
    assert await engine.until(made, "cancelled", rounds=120) == "cancelled"
    assert not engine.cloud.standing()
    await machine_orders.require_standard(engine, mutating=3)


async def test_the_first_net_holds_alone_the_same_token_makes_one_machine(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(replays=True, names_are_unique=False)
    )
    engine.cloud.is_blind = True
    engine.cloud.arm(pocket.CREATE, pocket.lost(), pocket.lost(), done=True)
    made = await engine.order()
    await engine.to_active(made)
    assert len(engine.cloud.ever()) == 1
    assert len(await engine.tried(made)) == 1
    await machine_orders.require_standard(engine, mutating=3)


async def test_the_second_net_holds_alone_looking_up_finds_what_was_made(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(names_are_unique=False)
    )
    engine.cloud.arm(pocket.CREATE, pocket.lost(), done=True)
    made = await engine.order()
    await engine.to_active(made)
    assert len(engine.cloud.ever()) == 1
    await machine_orders.require_standard(engine, mutating=1)


async def test_two_engines_carry_one_order_on_and_one_machine_is_made(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    other = machine_orders.Engine(engine.platform, cloud=engine.cloud)
    made = await engine.order()
    for _ in range(8):
        engine.platform.clock.advance(11.0)
        await asyncio.gather(engine.reconciler.round(), other.reconciler.round())
    assert await engine.state(made) == "booting"
    await engine.to_active(made)
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE]
    await machine_orders.require_standard(engine, mutating=1)


async def _resolve(
    engine: machine_orders.Engine,
    made: requests.Made,
    choice: requests.Choice,
    ref: str | None = None,
) -> requests.Made:
    return await engine.store.transact(
        lambda tx: requests.resolve(
            tx,
            operation_id=made.operation.operation_id,
            choice=choice,
            provider_ref=ref,
            asked=engine.asked(),
        )
    )
