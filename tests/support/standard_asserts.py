"""The asserts (a) to (f) that hold after every trial of the engine, at whatever provider.

(a) what stands there with our tags is what is shown; (b) nothing hangs there that nobody knows;
(c) each token is spent, ended, or bound to an attempt that is open; (d) what is shown as spent is
what was bought; (e) no secret is in the store, in an answer or in the log; (f) no more was changed
there than the trial allows. At the end each order is sent once more with its Idempotency-Key: the
same operation comes back. The log is read while `listening`; what another process logged is not.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from platform_server.backup import rows as backup_rows
from platform_server.backup import tables
from platform_server.cloud import connections, costs, machines, means
from platform_server.endpoints import cloud_shown, operations
from platform_server.operations import records
from platform_server.store import contract
from provisioning import naming
from runtime_kit import clock as clock_kit
from tests.support import domain
from tests.support.clouds import ledger as ledger_kit
from wire_protocol import tickets as wire_tickets

_MOST: Final = 5000
_TABLES: Final = (*tables.KEPT, *tables.LEFT_OUT)
_LOGGERS: Final = ("platform_server", "provisioning", "runtime_kit", "wire_protocol")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What the provider itself knows: nothing in it comes from the Platform.

    `lives` are the seconds that each machine of ours was there, by its id. `tickets` are those of
    all first-boot data it was ever given. `changing` are the calls that changed something.
    """

    machines: frozenset[str]
    children: frozenset[str]
    lives: Mapping[str, float]
    tickets: Sequence[str]
    changing: Sequence[str]
    secrets: Sequence[str] = ()


class Engine(Protocol):
    """What is asked of an engine."""

    store: contract.Store
    platform: domain.Domain
    means: means.Means

    async def witness(self) -> Witness:
        """What the provider knows now."""
        ...

    async def send_again(self) -> None:
        """Sends every order once more with its key; the same operation has to come back."""
        ...


class _Heard(logging.Handler):
    """Every record whole, what it carries beside its sentence included."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.getMessage()} {vars(record)!r} {record.exc_info!r}")


_HEARD: Final = _Heard()


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Hears what the product logs from here on, for the length of the `with`."""
    _HEARD.texts.clear()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.addHandler(_HEARD)
        one.setLevel(logging.DEBUG)
    try:
        yield _HEARD.texts
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.removeHandler(_HEARD)
            one.setLevel(level)


async def require(
    engine: Engine,
    *,
    mutating: int,
    secrets: Sequence[str] = (),
    unseen_seconds: float = 60.0,
    vanished: frozenset[str] = frozenset(),
) -> None:
    """All of them.

    `unseen_seconds`: for how long at most a machine's end may have gone unnoticed (an engine that
    was down); until it is confirmed it costs. `vanished`: ids that are shown although somebody
    deleted them behind our back, since nobody has noticed yet.
    """
    await engine.send_again()
    witness = await engine.witness()
    shown = await _list_shown(engine)
    standing = {one.provider_ref for one in shown if one.counts and one.provider_ref is not None}
    assert standing == witness.machines | vanished, (standing, witness.machines)  # (a)
    assert witness.children <= await _list_known_children(engine)  # (b)
    await _require_tokens(engine)  # (c)
    await _require_spend(engine, witness, unseen_seconds=unseen_seconds)  # (d)
    hidden = [*secrets, *witness.secrets, *_tokens_of(witness.tickets)]
    await _require_hidden(engine, shown, hidden=hidden)  # (e)
    assert len(witness.changing) <= mutating, (len(witness.changing), witness.changing)  # (f)


def require_ledger(ledger: ledger_kit.Ledger, *, installation: str) -> None:
    """What of (a) and (b) holds after a trial of a driver alone, by what its fake holds.

    Each attempt has one machine or none, and whatever stands there with our mark says whose it is.
    """
    bought = [one for one in ledger.living(installation) if one.user_data]
    attempts = collections.Counter(naming.owner_of(one.tags) for one in bought)
    assert None not in attempts, [one.ref for one in bought]
    assert not [owner for owner, number in attempts.items() if number > 1]
    for thing in ledger.living_things(installation):
        owner = naming.owner_of(thing.tags)
        assert owner is not None, (thing.kind, thing.ref)
        assert owner.operation, (thing.kind, thing.ref)


async def _list_shown(engine: Engine) -> Sequence[machines.Machine]:
    return await engine.store.read(
        lambda tx: machines.list_page(
            tx, limit=500, infra=None, connection_id=None, ended=True, before=None
        )
    )


async def _list_known_children(engine: Engine) -> set[str]:
    rows = await engine.store.read(
        lambda tx: tx.fetch_all(
            "SELECT provider_ref FROM cloud_children WHERE gone_at IS NULL LIMIT 5000"
        )
    )
    return {str(row["provider_ref"]) for row in rows}


async def _require_tokens(engine: Engine) -> None:
    """Each that was minted is spent, ended, or bound to an attempt that is open and not too old."""
    now = clock_kit.to_micros(engine.platform.clock.now())
    loose = await engine.store.read(
        lambda tx: tx.fetch_all(
            "SELECT e.enrollment_id FROM enrollments e WHERE e.state = 'pending' "
            "AND e.expires_at > ? AND e.created_by LIKE 'operation:%' AND NOT EXISTS ("
            "SELECT 1 FROM cloud_attempts a JOIN operations o ON o.operation_id = a.operation_id "
            "WHERE a.enrollment_id = e.enrollment_id AND a.state IN ('written', 'sent', 'present') "
            "AND o.ended_at IS NULL) LIMIT 100",
            now,
        )
    )
    assert not [row["enrollment_id"] for row in loose]


async def _require_spend(engine: Engine, witness: Witness, *, unseen_seconds: float) -> None:
    """What is shown is what the lives there cost, never less, more by what went unnoticed."""
    now = engine.platform.clock.now()
    totals = await engine.store.read(lambda tx: costs.total_by_connection(tx, now=now))
    shown = sum(one.spent_micros for own in totals.values() for one in own)
    prices = await engine.store.read(_prices_by_ref)
    dearest = max(prices.values(), default=0)
    bought = sum(
        seconds * prices.get(ref, dearest) / 3600 for ref, seconds in witness.lives.items()
    )
    most = bought + unseen_seconds * dearest / 3600 * max(1, len(witness.lives))
    assert bought - 2 * (1 + len(witness.lives)) <= shown <= most, (bought, shown, most)


async def _prices_by_ref(tx: contract.Tx) -> dict[str, int]:
    rows = await tx.fetch_all(
        "SELECT a.provider_ref, m.hourly_micros FROM cloud_attempts a JOIN cloud_machines m "
        "ON m.machine_id = a.machine_id LIMIT 5000"
    )
    return {str(row["provider_ref"]): int(row["hourly_micros"] or 0) for row in rows}


def _tokens_of(texts: Sequence[str]) -> Iterator[str]:
    """Each ticket's token, and the document that holds it in another form."""
    for text in texts:
        ticket = json.loads(text)
        yield str(ticket["document"])
        document = wire_tickets.read_document(wire_tickets.of_wire(**ticket).content)
        yield document.token.text()


async def _require_hidden(
    engine: Engine, shown: Sequence[machines.Machine], *, hidden: Sequence[str]
) -> None:
    """In no column of any table, in no answer, in no line of the log."""
    assert all(hidden)  # an empty text would be found everywhere
    for table in _TABLES:
        rows = await engine.store.read(functools.partial(_read_all, table=table))
        for row in rows:
            for column in backup_rows.columns_of(row):
                _require_none_in(row[column], hidden=hidden, where=f"{table}.{column}")
    for answer in await engine.store.read(functools.partial(_list_answers, engine, shown)):
        _require_none_in(answer, hidden=hidden, where="an answer")
    for line in _HEARD.texts:
        _require_none_in(line, hidden=hidden, where="the log")


def _require_none_in(value: object, *, hidden: Sequence[str], where: str) -> None:
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    assert not [number for number, one in enumerate(hidden) if one in text], where


async def _read_all(tx: contract.Tx, *, table: str) -> Sequence[contract.Row]:
    return await tx.fetch_all(f"SELECT * FROM {table} LIMIT {_MOST}")  # noqa: S608 - constants


async def _list_answers(
    engine: Engine, shown: Sequence[machines.Machine], tx: contract.Tx
) -> list[str]:
    """Machines, their operations and connections as the API answers with them."""
    now = engine.platform.clock.now()
    answers = [(await cloud_shown.machine(tx, one, now=now)).model_dump_json() for one in shown]
    present = await connections.list_page(tx, limit=100)
    answers += [
        one.model_dump_json() for one in await cloud_shown.connection_page(tx, present, now=now)
    ]
    rows = await tx.fetch_all("SELECT operation_id FROM operations LIMIT 500")
    for row in rows:
        found = await records.find(tx, operation_id=str(row["operation_id"]))
        assert found is not None
        answers.append(operations.shown(found).model_dump_json())
        answers += [str(step) for step in found.steps]
    return answers
