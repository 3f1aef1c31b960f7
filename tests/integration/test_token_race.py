"""B2: many machines use one token at once, and exactly one of them wins."""

import asyncio
import collections
import pathlib
from collections.abc import AsyncIterator, Sequence

import pytest

from platform_server.store import contract, opening
from tests.support import domain

KEYS = 50


@pytest.fixture
async def engines(
    store_url: str, store_kind: str, tmp_path: pathlib.Path
) -> AsyncIterator[Sequence[domain.Domain]]:
    """One engine on SQLite, two engines on one PostgreSQL, each with a store of its own."""
    stores: list[contract.Store] = []
    try:
        built: list[domain.Domain] = []
        for number in range(1 if store_kind == "sqlite" else 2):
            stores.append(await opening.open_store(store_url))
            folder = tmp_path / f"engine-{number}"
            folder.mkdir()
            built.append(
                await domain.build(
                    stores[-1],
                    folder=folder,
                    keyring=built[0].keyring if built else None,
                    clock=built[0].clock if built else None,
                )
            )
        yield built
    finally:
        for store in stores:
            await store.close()


@pytest.fixture(scope="module")
def certificates() -> Sequence[str]:
    return [domain.new_certificate() for _ in range(KEYS)]


async def _race(
    engines: Sequence[domain.Domain], *, certificates: Sequence[str], rounds: int
) -> None:
    first = engines[0]
    for number in range(rounds):
        node_id = f"race-{number}"
        token = await first.new_token(node_id)
        said = await asyncio.gather(
            *(
                engines[place % len(engines)].knock(node_id, token, certificate=certificate)
                for place, certificate in enumerate(certificates)
            )
        )
        statuses = collections.Counter(one.status for one in said)
        assert statuses == {201: 1, 403: KEYS - 1}, f"in round {number}"
    assert await first.count("nodes") == rounds
    assert await first.count("enrollments", "state = 'consumed'") == rounds
    audit = collections.Counter[tuple[str, str | None]]()
    for outcome, reason, count in await first.audit():
        audit[outcome, reason] += count
    assert audit["enrolled", None] == rounds
    assert audit["refused", "already-used"] == rounds * (KEYS - 1)
    assert await first.count("action_log", "action = 'node.enrolled'") == rounds


@pytest.mark.timeout(300)
async def test_b2_of_fifty_keys_at_once_exactly_one_wins_in_each_of_forty_rounds(
    engines: Sequence[domain.Domain], certificates: Sequence[str]
) -> None:
    await _race(engines, certificates=certificates, rounds=40)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_b2_of_fifty_keys_at_once_exactly_one_wins_in_each_of_two_hundred_rounds(
    engines: Sequence[domain.Domain], certificates: Sequence[str]
) -> None:
    await _race(engines, certificates=certificates, rounds=200)


@pytest.mark.timeout(120)
async def test_one_key_that_asks_fifty_times_at_once_gets_one_node_every_time(
    engines: Sequence[domain.Domain], certificates: Sequence[str]
) -> None:
    token = await engines[0].new_token("same-1")
    said = await asyncio.gather(
        *(
            engines[place % len(engines)].knock("same-1", token, certificate=certificates[0])
            for place in range(KEYS)
        )
    )
    assert collections.Counter(one.status for one in said) == {201: 1, 200: KEYS - 1}
    assert len({one.raw for one in said}) == 1
    assert await engines[0].count("nodes") == 1


@pytest.mark.timeout(120)
async def test_two_operators_who_issue_at_once_leave_one_usable_enrollment(
    engines: Sequence[domain.Domain],
) -> None:
    said = await asyncio.gather(
        *(engines[place % len(engines)].new_token("both-1") for place in range(10)),
        return_exceptions=True,
    )
    issued = [one for one in said if not isinstance(one, BaseException)]
    codes = {getattr(one, "code", repr(one)) for one in said if isinstance(one, BaseException)}
    assert len(issued) == 1
    assert codes == {"enrollment-pending"}
    assert await engines[0].count("enrollments", "state = 'pending'") == 1


@pytest.mark.timeout(120)
async def test_removing_a_node_while_it_enrolls_anew_never_leaves_a_live_node(
    engines: Sequence[domain.Domain], certificates: Sequence[str]
) -> None:
    one, other = engines[0], engines[-1]
    for number in range(10):
        node_id = f"going-{number}"
        await one.knock(node_id, await one.new_token(node_id), certificate=certificates[0])
        again = await one.new_token(node_id, replace=True)
        await asyncio.gather(
            one.knock(node_id, again, certificate=certificates[1]), other.remove(node_id)
        )
    assert await one.count("nodes", "state <> 'removed'") == 0
    assert await one.count("enrollments", "state = 'pending'") == 0
