"""Who is let in with a ticket, and who is not: document, operation, attempt and provider agree."""

import base64
import dataclasses
import datetime
import functools
import json
import pathlib

from platform_server.app import local_machines
from platform_server.cloud import admission, means, tickets
from platform_server.endpoints import enroll_decision, enroll_door
from platform_server.store import contract
from tests.support import domain, machine_orders
from tests.support.clouds import pocket


async def _booted(
    store: contract.Store, folder: pathlib.Path, **more: object
) -> tuple[machine_orders.Engine, machine_orders.Guest]:
    engine = await machine_orders.build(store, folder=folder, **more)  # type: ignore[arg-type]
    made = await engine.order()
    await engine.until(made, "booting")
    await engine.carry_on(rounds=3)
    return engine, machine_orders.Guest(engine)


async def _last_reason(engine: machine_orders.Engine) -> str | None:
    return (await engine.platform.audit())[0][1]


async def test_edited_first_boot_data_is_refused_and_spends_nothing(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    edited = dataclasses.replace(guest.document, url="https://elsewhere.test").to_bytes()
    ticket = {**guest.ticket, "document": base64.b64encode(edited).decode()}
    assert (await guest.knocks(ticket=ticket)).status == 403
    assert await _last_reason(engine) == "ticket-refused"
    assert (await guest.knocks(ticket=None)).status == 403
    assert await _last_reason(engine) == "ticket-missing"
    assert await guest.joins() == 201


async def test_a_document_of_ours_opens_with_its_own_token_alone(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    other = await engine.order("web-2")
    await engine.until(other, "booting")
    await engine.carry_on(rounds=3)
    second = machine_orders.Guest(engine)
    assert (await guest.knocks(ticket=second.ticket)).status == 403
    assert await _last_reason(engine) == "ticket-refused"
    person = await engine.platform.new_token("db-1")
    said = await engine.platform.knock("db-1", person, ticket=second.ticket)
    assert said.status == 403
    assert (await engine.platform.knock("db-1", person)).status == 201


async def test_an_old_view_of_the_provider_answers_503_and_spends_nothing(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    engine.platform.clock.advance(61.0)
    calls = len(engine.cloud.calls())
    said = await guest.knocks()
    assert (said.status, said.body["code"], said.retry_after) == (503, "provider-unavailable", 5)
    assert len(engine.cloud.calls()) == calls  # nobody is asked inside the request
    assert await engine.platform.count("enrollments", "state = 'pending'") == 1
    await engine.carry_on(rounds=1, seconds=1.0)
    assert await guest.joins() == 201


async def test_a_machine_that_tells_another_id_than_its_provider_is_refused(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    assert (await guest.knocks(instance={"id": "m-99"})).status == 403
    assert await _last_reason(engine) == "machine-differs"
    assert (await guest.knocks(instance=None)).status == 201


async def test_a_provider_view_with_other_tags_lets_nobody_in(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    row = await store.read(lambda tx: tx.fetch_one("SELECT seen FROM cloud_machines"))
    assert row is not None
    seen = json.loads(row["seen"])
    for changed in ({"ref": "m-99"}, {"owner": {**seen["owner"], "attempt": 2}}):
        await store.transact(functools.partial(_set_seen, text=json.dumps({**seen, **changed})))
        assert (await guest.knocks()).status == 403
        assert await _last_reason(engine) == "machine-differs"
    await store.transact(functools.partial(_set_seen, text=json.dumps({**seen, "owner": None})))
    assert (await guest.knocks()).status == 503  # its tags are not shown yet


async def test_b82_a_token_revoked_by_hand_is_one_failure_and_no_loop(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(
        store,
        tmp_path,
        limits=means.Limits(enrollment=datetime.timedelta(minutes=2), attempts=1),
    )
    await store.transact(
        lambda tx: tickets.revoke(
            tx, enrollment_id=guest.token.enrollment_id, now=engine.platform.clock.now()
        )
    )
    assert (await guest.knocks()).status == 403
    await engine.carry_on(rounds=40)
    (operation,) = await store.read(
        lambda tx: tx.fetch_all("SELECT state FROM operations LIMIT 10")
    )
    assert operation["state"] == "failed"
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE]
    await machine_orders.require_standard(engine, mutating=1)


async def test_first_boot_reports_its_phases_and_the_operation_follows(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    assert await guest.reports("fetching", "3 MB") == 204
    await engine.carry_on(rounds=1)
    assert await _states(store) == ["bootstrapping"]
    assert await guest.reports("joining") == 204
    await engine.carry_on(rounds=1)
    assert await _states(store) == ["enrolling"]
    assert await guest.joins() == 201
    assert await guest.reports("starting") == 204  # with a spent token
    await engine.carry_on(rounds=2)
    assert await _states(store) == ["active"]
    assert await guest.reports("starting") == 403  # the operation has ended
    phases = await store.read(
        lambda tx: admission.list_phases(tx, operation_id=guest.document.operation_id)
    )
    assert [one["phase"] for one in phases] == ["fetching", "joining", "starting"]
    roles = await store.read(lambda tx: tx.fetch_one("SELECT roles FROM nodes"))
    assert roles is not None
    assert json.loads(roles["roles"]) == ["general"]


async def test_the_bridges_gateway_is_told_to_machines_on_it_alone(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    platform = engine.platform
    host = machine_orders.URL.removeprefix("https://").partition(":")[0]
    for bridge, told in ((host, f"https://{host}:8445"), ("10.99.0.1", None), (None, None)):
        platform.door = enroll_door.EnrollDoor(
            store,
            trust=platform.trust,
            operators=platform.operators,
            reacher=None,
            rules=enroll_decision.Rules(
                infra="default", environment="test", limits=domain.LIMITS, cap=domain.CAP
            ),
            clock=platform.clock,
            gateway_near=functools.partial(
                local_machines.gateway_near, bridge=bridge, gateways=("https://192.0.2.7:8445",)
            ),
        )
        said = await guest.knocks()  # the second and third are repeats
        assert said.status in (200, 201)
        assert said.body["gateway_url"] == told
    person = await platform.new_token("db-1")
    assert (await platform.knock("db-1", person)).body["gateway_url"] is None


async def test_phases_are_bounded_in_pace_and_number_and_strangers_write_none(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    assert await guest.reports("fetching") == 204
    engine.platform.clock.jump(-1.5)
    assert await guest.reports("fetching") == 429
    for _ in range(admission.MOST_PHASES - 1):
        assert await guest.reports("fetching", "x" * 1000) == 204
    assert await guest.reports("fetching") == 429
    assert await engine.platform.count("boot_phases") == admission.MOST_PHASES
    person = await engine.platform.new_token("db-1")
    stranger = json.dumps(
        {"node_id": "db-1", "token": person.token.text(), "phase": "fetching"}
    ).encode()
    said = await engine.platform.door.answer_enroll(
        stranger, address=domain.PEER, request_id=domain.REQUEST
    )
    assert said.status == 403


async def test_a_phase_needs_the_ticket_of_its_attempt(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path)
    other = await engine.order("web-2")
    await engine.until(other, "booting")
    await engine.carry_on(rounds=3)
    second = machine_orders.Guest(engine)
    edited = {**guest.ticket, "document": base64.b64encode(b"{}").decode()}
    for ticket, reason in (
        (None, "ticket-missing"),
        (edited, "ticket-refused"),
        (second.ticket, "ticket-refused"),
    ):
        assert await guest.reports("failed", "by a thief of the token", ticket=ticket) == 403
        assert await _last_reason(engine) == reason
    assert await engine.platform.count("boot_phases") == 0
    assert await guest.reports("fetching") == 204


async def test_a_first_boot_that_failed_ends_the_attempt_with_its_own_words(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(store, tmp_path, limits=means.Limits(attempts=1))
    await guest.reports("failed", "fetching: the bundle's hash does not match")
    await engine.carry_on(rounds=2)
    row = await store.read(lambda tx: tx.fetch_one("SELECT state, reason FROM operations"))
    assert row is not None
    assert row["state"] == "failed"
    assert "the bundle's hash does not match" in row["reason"]


async def test_a_new_attempt_has_a_new_token_and_the_old_one_opens_nothing(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, guest = await _booted(
        store,
        tmp_path,
        limits=means.Limits(enrollment=datetime.timedelta(seconds=60), attempts=2),
    )
    while len(engine.cloud.ever()) < 2:
        await engine.carry_on(rounds=1)
    await engine.carry_on(rounds=3)
    second = machine_orders.Guest(engine)
    assert second.ref != guest.ref
    assert (await guest.knocks()).status == 403
    assert await second.joins() == 201


async def _set_seen(tx: contract.Tx, *, text: str) -> None:
    await tx.execute("UPDATE cloud_machines SET seen = ?", text)


async def _states(store: contract.Store) -> list[str]:
    rows = await store.read(lambda tx: tx.fetch_all("SELECT state FROM operations LIMIT 10"))
    return [row["state"] for row in rows]
