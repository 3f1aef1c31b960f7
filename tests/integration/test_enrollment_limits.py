"""Limits on failed enrollments, and what of them is kept, over a real store of either kind."""

import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any, cast

import pytest

from platform_server.enrollment import attempts, limiter
from platform_server.store import contract
from tests.support import domain
from wire_protocol import enrollment_token, problems, statements, trust

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def one(store: contract.Store, tmp_path: pathlib.Path) -> domain.Domain:
    return await domain.build(store, folder=tmp_path)


async def _row(one: domain.Domain, sql: str, *values: object) -> contract.Row:
    row = await one.store.read(lambda tx: tx.fetch_one(sql, *values))
    assert row is not None
    return row


async def _unknown(one: domain.Domain) -> domain.Said:
    return await one.knock("web-1", enrollment_token.new().text())


async def test_failures_are_limited_but_a_good_token_never_is(one: domain.Domain) -> None:
    good = await one.new_token("web-1")
    said = [await _unknown(one) for _ in range(35)]
    assert [one_said.status for one_said in said] == [403] * 30 + [429] * 5
    assert said[-1].retry_after == said[-1].body["retry_after"] == 60
    assert (await one.audit())[0] == ("refused", "unknown-token", 30)
    assert (await one.knock("web-1", good)).status == 201


async def test_phase_reports_of_strangers_are_limited_and_recorded_like_their_enrollments(
    one: domain.Domain,
) -> None:
    def report(token: str) -> bytes:
        return json.dumps({"node_id": "web-1", "token": token, "phase": "joining"}).encode()

    good = await one.new_token("web-1")
    said = [await one.send(report(enrollment_token.new().text())) for _ in range(35)]
    assert [one_said.status for one_said in said] == [403] * 30 + [429] * 5
    assert (await _unknown(one)).status == 429
    assert await one.audit() == [("refused", "unknown-token", 30)]
    assert (await one.send(report(good.token.text()))).status == 403
    assert (await one.audit())[0] == ("refused", "no-operation", 1)


async def test_the_holder_of_a_good_token_adds_one_line_an_hour_whatever_version_he_claims(
    one: domain.Domain,
) -> None:
    token = await one.new_token("web-1")
    for hour in range(2):
        for number in range(20):
            said = await one.knock("web-1", token, version=f"9.{hour}.{number}")
            assert said.status == problems.CODES["worker-newer"].status
        assert await one.count("action_log", "action = 'node.worker-newer'") == hour + 1
        assert len(await one.audit()) == hour + 1
        one.clock.advance(3600)
        token = await one.new_token("web-1")
    row = await _row(one, "SELECT version, count FROM enrollment_attempts ORDER BY attempt_id DESC")
    assert (row["version"], row["count"]) == ("9.1.19", 20)


async def test_guessing_at_one_token_id_is_stopped_after_ten(one: domain.Domain) -> None:
    issued = await one.new_token("web-1")
    said = []
    for n in range(12):
        guess = enrollment_token.EnrollmentToken(
            enrollment_id=issued.token.enrollment_id,
            secret_hex=enrollment_token.new().secret_hex,
        )
        said.append(await one.knock("web-1", guess.text(), address=f"192.0.2.{n}"))
    assert [one_said.status for one_said in said] == [403] * 10 + [429] * 2
    assert (await one.knock("web-1", issued)).status == 201


async def test_all_addresses_together_are_stopped_at_the_ceiling(one: domain.Domain) -> None:
    statuses = []
    for n in range(125):
        said = await one.knock("web-1", enrollment_token.new().text(), address=f"198.51.100.{n}")
        statuses.append(said.status)
    assert statuses == [403] * 120 + [429] * 5


async def test_the_audit_keeps_500_refused_entries_and_every_enrolled_one(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    one = await domain.build(
        store,
        folder=tmp_path,
        cap=attempts.Cap(entries=10, days=30),
        limits=limiter.Limits(per_minute=1000, per_address=1000, per_token=1000),
    )
    assert (await one.knock("web-0", await one.new_token("web-0"))).status == 201
    for n in range(25):
        await one.knock(f"guess-{n}", enrollment_token.new().text())
    assert await one.count("enrollment_attempts", "outcome = 'refused'") == 10
    assert await one.count("enrollment_attempts", "outcome = 'enrolled'") == 1
    row = await _row(
        one, "SELECT MIN(node_id) AS oldest FROM enrollment_attempts WHERE outcome = 'refused'"
    )
    assert row["oldest"] == "guess-15"


async def test_refusals_older_than_30_days_are_forgotten(one: domain.Domain) -> None:
    await _unknown(one)
    one.clock.advance(29 * 86_400)
    await one.store.transact(lambda tx: attempts.purge(tx, now=one.clock.now(), cap=domain.CAP))
    assert len(await one.audit()) == 1
    one.clock.advance(2 * 86_400)
    await one.store.transact(lambda tx: attempts.purge(tx, now=one.clock.now(), cap=domain.CAP))
    assert not await one.audit()


async def test_no_table_holds_a_token_or_its_secret_after_an_enrollment(
    one: domain.Domain,
) -> None:
    issued = await one.new_token("web-1")
    await one.knock("web-1", issued)
    await one.knock("web-1", issued)
    for table in ("enrollment_attempts", "action_log", "events", "nodes", "platform_values"):
        rows = await one.store.read(functools.partial(_all_rows, table=table))
        text = repr([tuple(cast("Any", row)) for row in rows])
        assert issued.token.secret_hex not in text
        assert domain.PEER not in text


async def _all_rows(tx: contract.Tx, *, table: str) -> Sequence[contract.Row]:
    return await tx.fetch_all(f"SELECT * FROM {table} LIMIT 100")  # noqa: S608 - from the list


async def test_the_trust_question_is_answered_without_a_token_and_limited_by_itself(
    one: domain.Domain,
) -> None:
    answered = await one.door.answer_trust(b"{}", address=domain.PEER, request_id=domain.REQUEST)
    assert answered.status == 200
    parsed = statements.parse_answer(answered.body)
    assert trust.accept_first(parsed, trust_key_ids=[]).statement.serial == 1
    assert (
        await one.door.answer_trust(b'{"a":1}', address="192.0.2.8", request_id=domain.REQUEST)
    ).status == 422
    many = [
        await one.door.answer_trust(b"{}", address=domain.PEER, request_id=domain.REQUEST)
        for _ in range(130)
    ]
    assert {one_said.status for one_said in many} == {200, 429}
    assert (
        await one.door.answer_trust(b"{}", address="192.0.2.9", request_id=domain.REQUEST)
    ).status == 200
