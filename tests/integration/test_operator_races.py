"""Issuing, removing, allowing and labelling while machines enroll, on one engine and on two.

On PostgreSQL another engine may commit between any two statements of a transaction. The rounds
leave that to chance on either store; the tests that need two engines put the other's commit at
the very place where it once did harm.
"""

import asyncio
import collections
import functools
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from platform_server.nodes import registry
from platform_server.store import contract, opening
from platform_server.tokens import issue, records, redeem
from tests.support import domain
from wire_protocol import ids

pytestmark = pytest.mark.timeout(180)
ROUNDS = 40
AT_ONCE = 4
STRAY = "state = 'pending' AND reenroll = 0 AND node_id IN (SELECT node_id FROM nodes)"


async def _engines(
    url: str, folder: pathlib.Path, *, number: int
) -> AsyncIterator[Sequence[domain.Domain]]:
    built: list[domain.Domain] = []
    try:
        for name in range(number):
            (folder / f"engine-{name}").mkdir()
            built.append(
                await domain.build(
                    await opening.open_store(url),
                    folder=folder / f"engine-{name}",
                    keyring=built[0].keyring if built else None,
                    clock=built[0].clock if built else None,
                )
            )
        yield built
    finally:
        for one in built:
            await one.store.close()


@pytest.fixture
async def engines(
    store_url: str, store_kind: str, tmp_path: pathlib.Path
) -> AsyncIterator[Sequence[domain.Domain]]:
    """One engine on SQLite, two on one PostgreSQL."""
    number = 1 if store_kind == "sqlite" else 2
    async for built in _engines(store_url, tmp_path, number=number):
        yield built


@pytest.fixture
async def two(postgres_url: str, tmp_path: pathlib.Path) -> AsyncIterator[Sequence[domain.Domain]]:
    """Two engines on one PostgreSQL."""
    async for built in _engines(postgres_url, tmp_path, number=2):
        yield built


def _meanwhile(
    monkeypatch: pytest.MonkeyPatch, *, place: Any, name: str, do: Callable[[], Awaitable[Any]]
) -> None:
    """Once, when the function has answered, something else is done and committed."""
    original = getattr(place, name)
    due = [do]

    @functools.wraps(original)
    async def answered(*given: Any, **named: Any) -> Any:
        value = await original(*given, **named)
        if due:
            await due.pop()()
        return value

    monkeypatch.setattr(place, name, answered)


async def test_one_key_that_asks_everywhere_at_once_is_one_node_in_each_of_forty_rounds(
    engines: Sequence[domain.Domain],
) -> None:
    first, certificate = engines[0], domain.new_certificate()
    for number in range(ROUNDS):
        token = await first.new_token(f"same-{number}")
        said = await asyncio.gather(
            *(
                engines[place % len(engines)].knock(
                    f"same-{number}", token, certificate=certificate
                )
                for place in range(AT_ONCE)
            )
        )
        statuses = collections.Counter(one.status for one in said)
        assert statuses == {201: 1, 200: AT_ONCE - 1}, f"in round {number}"
    assert {outcome for outcome, _, _ in await first.audit()} == {"enrolled"}
    assert await first.count("action_log", "action = 'node.exists'") == 0


async def test_a_retry_that_meets_its_own_first_try_on_the_other_engine_gets_its_answer(
    two: Sequence[domain.Domain], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    first: list[domain.Said] = []

    async def enroll() -> None:
        first.append(await other.knock("web-1", token, certificate=certificate))

    _meanwhile(monkeypatch, place=redeem, name="prove", do=enroll)
    said = await one.knock("web-1", token, certificate=certificate)
    assert (first[0].status, said.status) == (201, 200)
    assert said.raw == first[0].raw
    assert await one.audit() == [("enrolled", None, 1)]


async def test_issuing_while_the_machine_enrolls_leaves_no_first_token_for_a_registered_node(
    engines: Sequence[domain.Domain],
) -> None:
    one, other = engines[0], engines[-1]
    for number in range(ROUNDS):
        node_id = f"busy-{number}"
        token = await one.new_token(node_id)
        said = await asyncio.gather(
            other.knock(node_id, token),
            one.new_token(node_id, replace=number % 2 == 0),
            return_exceptions=True,
        )
        assert all(
            isinstance(one_said, domain.Said | issue.Issued | issue.CannotIssue)
            for one_said in said
        ), said
    assert await one.count("enrollments", STRAY) == 0


@pytest.mark.parametrize("replace", [False, True])
async def test_a_machine_that_enrolls_under_an_issue_makes_it_a_reenrollment_or_none(
    two: Sequence[domain.Domain], monkeypatch: pytest.MonkeyPatch, *, replace: bool
) -> None:
    one, other = two
    token = await one.new_token("web-1")
    _meanwhile(
        monkeypatch,
        place=records,
        name="find_pending",
        do=lambda: other.knock("web-1", token),
    )
    if not replace:
        with pytest.raises(issue.CannotIssue) as refused:
            await one.new_token("web-1")
        assert refused.value.code == "node-exists"
        return
    issued = await one.new_token("web-1", replace=True)
    assert issued.enrollment.reenroll
    assert issued.replaced is None
    assert (await one.knock("web-1", issued)).body["generation"] == 2


async def test_b12_a_token_issued_while_its_node_is_removed_opens_nothing_after_the_allowing(
    engines: Sequence[domain.Domain],
) -> None:
    one, other = engines[0], engines[-1]
    for number in range(ROUNDS // 2):
        node_id = f"gone-{number}"
        await one.knock(node_id, await one.new_token(node_id))
        issued, _ = await asyncio.gather(
            one.new_token(node_id, replace=True), other.remove(node_id), return_exceptions=True
        )
        await other.allow(node_id)
        if isinstance(issued, issue.Issued):
            assert (await one.knock(node_id, issued)).status == 403
        else:
            assert isinstance(issued, issue.CannotIssue)
            assert issued.code == "node-removed"
    assert await one.count("enrollments", "state = 'pending'") == 0
    assert await one.count("nodes") == 0


async def test_b12_a_removal_waits_for_an_issue_that_has_seen_the_node_and_ends_its_token(
    two: Sequence[domain.Domain],
) -> None:
    one, other = two
    await one.knock("web-1", await one.new_token("web-1"))
    removing: list[asyncio.Task[None]] = []

    async def ask(tx: contract.Tx) -> issue.Standing:
        standing = await registry.standing_of(
            tx, node_id=ids.NodeId("web-1"), operators=one.operators
        )
        removing.append(asyncio.create_task(other.remove("web-1")))
        assert not (await asyncio.wait(removing, timeout=0.2))[0]
        return standing

    issued = await one.new_token("web-1", replace=True, ask=ask)
    await removing[0]
    await one.allow("web-1")
    assert (await one.knock("web-1", issued)).status == 403


async def test_labels_that_a_new_enrollment_brings_are_not_overwritten_by_a_change_of_the_old(
    two: Sequence[domain.Domain], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    await one.knock("web-1", await one.new_token("web-1", labels={"zone": "a"}))
    again = await one.new_token("web-1", replace=True, labels={"zone": "b"})
    _meanwhile(monkeypatch, place=registry, name="get", do=lambda: other.knock("web-1", again))
    with pytest.raises(contract.StoreBusy):
        await one.store.transact(
            lambda tx: registry.change_labels(
                tx,
                node_id=ids.NodeId("web-1"),
                changes={"disk": "fast"},
                operators=one.operators,
            )
        )
    assert await one.count("nodes", """labels = '{"zone": "b"}'""") == 1
