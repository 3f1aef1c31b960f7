"""The rows of attempts: each try of an order at its provider, committed before the provider hears.

An attempt is `written`, then `sent` (committed right before the call), and from then on it is
either `present` (the provider's id is stored), proved `absent`, or `gone` after it was there. The
same attempt is always sent byte for byte the same: name, client token, first-boot data. A new one
can be written only when none before is in doubt or there.
"""

import dataclasses
import datetime
import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.sealing import envelope, sealed_rows
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from runtime_kit import clock
from wire_protocol import times

_COLUMNS: Final = (
    "operation_id, attempt, machine_id, name, client_token, request, request_sha256, "
    "enrollment_id, state, outcome, topic, code, reason, provider_ref, progress, clean_answers, "
    "looked_up_at, written_at, sent_at, doubted_at, settled_at"
)
MOST: Final = 100


class State(enum.StrEnum):
    """Where an attempt stands."""

    WRITTEN = "written"  # stored; the provider was not asked, or has said that it did nothing
    SENT = "sent"  # the provider may have it
    PRESENT = "present"  # the provider has it, under `provider_ref`
    ABSENT = "absent"  # proved: it was never made
    GONE = "gone"  # it was there, and the provider says that it is not


SETTLED: Final = (State.ABSENT, State.GONE)


class NotSettled(Exception):
    """An attempt before is there or in doubt, so no other one may be written: a fault of ours."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt. `request` is the exact order but for its first-boot data, which is sealed."""

    operation_id: str
    attempt: int
    machine_id: str
    request: provider.Request
    enrollment_id: str | None
    state: State
    written_at: datetime.datetime
    outcome: str | None = None
    topic: str | None = None
    code: str | None = None
    reason: str | None = None
    provider_ref: str | None = None
    progress: str | None = None
    clean_answers: int = 0
    looked_up_at: datetime.datetime | None = None
    sent_at: datetime.datetime | None = None
    doubted_at: datetime.datetime | None = None
    settled_at: datetime.datetime | None = None


async def write(
    tx: contract.Tx,
    *,
    request: provider.Request,
    machine_id: str,
    enrollment_id: str,
    keyring: envelope.Keyring,
    now: datetime.datetime,
) -> Attempt:
    """Stores one; raises `NotSettled`, and what sealing raises."""
    owner = request.owner
    open_ones = await tx.fetch_one(
        "SELECT COUNT(*) AS n FROM cloud_attempts WHERE machine_id = ? "
        "AND state NOT IN ('absent', 'gone')",
        machine_id,
    )
    if open_ones is None or int(open_ones["n"]):
        raise NotSettled(f"The machine {machine_id} has an attempt that is not settled.")
    sealed = await sealed_rows.seal_value(
        tx,
        keyring=keyring,
        name=sealed_name(owner.operation, owner.attempt),
        value=request.first_boot.encode(),
    )
    await tx.execute(
        "INSERT INTO cloud_attempts(operation_id, attempt, machine_id, name, client_token, "
        "request, request_sha256, first_boot, kek_id, enrollment_id, state, written_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'written', ?)",
        owner.operation,
        owner.attempt,
        machine_id,
        request.name,
        request.client_token,
        json.dumps(request_to_json(request), sort_keys=True),
        digest_of(request),
        sealed,
        envelope.kek_id_of(sealed),
        enrollment_id,
        clock.to_micros(now),
    )
    return Attempt(
        operation_id=owner.operation,
        attempt=owner.attempt,
        machine_id=machine_id,
        request=request,
        enrollment_id=enrollment_id,
        state=State.WRITTEN,
        written_at=now,
    )


async def write_adopted(
    tx: contract.Tx,
    *,
    request: provider.Request,
    operation_id: str,
    machine_id: str,
    ref: str,
    made_at: datetime.datetime,
    now: datetime.datetime,
) -> None:
    """Stores what a person has adopted as an attempt that is present, under its new operation.

    `request.owner` is what the provider's tags say, so its operation is the one that made it.
    """
    await tx.execute(
        "INSERT INTO cloud_attempts(operation_id, attempt, machine_id, name, client_token, "
        "request, request_sha256, state, provider_ref, written_at, sent_at, settled_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 'present', ?, ?, ?, ?)",
        operation_id,
        request.owner.attempt,
        machine_id,
        request.name,
        request.client_token,
        json.dumps(request_to_json(request), sort_keys=True),
        digest_of(request),
        ref,
        clock.to_micros(now),
        clock.to_micros(made_at),
        clock.to_micros(now),
    )


async def find_last(tx: contract.Tx, *, operation_id: str) -> Attempt | None:
    """The newest attempt of the operation."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_attempts WHERE operation_id = ? "  # noqa: S608 - a constant
        "ORDER BY attempt DESC LIMIT 1",
        operation_id,
    )
    return None if row is None else _of_row(row)


async def list_of(tx: contract.Tx, *, machine_id: str) -> Sequence[Attempt]:
    """Every attempt to make this machine, the first first."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM cloud_attempts WHERE machine_id = ? "  # noqa: S608 - a constant
        "ORDER BY attempt LIMIT ?",
        machine_id,
        MOST,
    )
    return [_of_row(row) for row in rows]


async def find_by_enrollment(tx: contract.Tx, *, enrollment_id: str) -> Attempt | None:
    """The attempt whose machine carries this enrollment's token."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_attempts WHERE enrollment_id = ?",  # noqa: S608 - a constant
        enrollment_id,
    )
    return None if row is None else _of_row(row)


async def open_request(
    tx: contract.Tx, *, attempt: Attempt, keyring: envelope.Keyring
) -> provider.Request:
    """The exact order, first-boot data included; raises `CannotOpen` and `ValueError`."""
    row = await tx.fetch_one(
        "SELECT first_boot, request_sha256 FROM cloud_attempts "
        "WHERE operation_id = ? AND attempt = ?",
        attempt.operation_id,
        attempt.attempt,
    )
    if row is None or row["first_boot"] is None:
        raise ValueError("The attempt's first-boot data was wiped: it is not to be sent again.")
    opened = await sealed_rows.open_value(
        tx,
        keyring=keyring,
        name=sealed_name(attempt.operation_id, attempt.attempt),
        sealed=bytes(row["first_boot"]),
    )
    request = dataclasses.replace(attempt.request, first_boot=opened.decode())
    if digest_of(request) != bytes(row["request_sha256"]):
        raise ValueError("The stored order is not the one that was written down.")
    return request


async def set_sent(tx: contract.Tx, *, attempt: Attempt, now: datetime.datetime) -> None:
    """The provider is about to be asked: from the commit on it may have it."""
    await _set(
        tx,
        attempt,
        "state = 'sent', sent_at = ?, outcome = NULL, topic = NULL, code = NULL, reason = NULL, "
        "doubted_at = NULL, clean_answers = 0, looked_up_at = NULL",
        clock.to_micros(now),
        before=State.WRITTEN,
    )


async def set_sending(tx: contract.Tx, *, attempt: Attempt, now: datetime.datetime) -> None:
    """One more call of the same order is about to be made: from now on that may be under way."""
    await _set(tx, attempt, "sent_at = ?", clock.to_micros(now), before=State.SENT)


async def set_written(tx: contract.Tx, *, attempt: Attempt, fault: outcomes.Fault) -> None:
    """The provider has said that it did nothing, and may do it later."""
    await _set(tx, attempt, "state = 'written', doubted_at = NULL", before=State.SENT)
    await note(tx, attempt=attempt, fault=fault)


async def set_present(
    tx: contract.Tx, *, attempt: Attempt, ref: str, progress: str | None, now: datetime.datetime
) -> None:
    """The provider has it under this id."""
    await _set(
        tx,
        attempt,
        "state = 'present', provider_ref = ?, progress = ?, settled_at = ?, looked_up_at = NULL, "
        "clean_answers = 0",
        ref,
        progress,
        clock.to_micros(now),
        before=State.SENT,
    )


async def wish_adopted(tx: contract.Tx, *, attempt: Attempt, ref: str | None) -> None:
    """A person says that this is it: to be asked of the provider at once; None: it is not."""
    await _set(tx, attempt, "provider_ref = ?, looked_up_at = NULL", ref, before=State.SENT)


async def set_settled(
    tx: contract.Tx, *, attempt: Attempt, state: State, now: datetime.datetime
) -> None:
    """It is proved absent, or gone: its first-boot data is wiped, which nobody may send again."""
    await _set(
        tx,
        attempt,
        "state = ?, settled_at = ?, progress = NULL, first_boot = NULL, kek_id = NULL, "
        "looked_up_at = NULL",
        state.value,
        clock.to_micros(now),
        before=attempt.state,
    )


async def note(tx: contract.Tx, *, attempt: Attempt, fault: outcomes.Fault) -> None:
    """How the last call about it ended."""
    await _set(
        tx,
        attempt,
        "outcome = ?, topic = ?, code = ?, reason = ?",
        fault.outcome.value,
        fault.topic.value,
        fault.code[:200],
        said(fault)[:1024],
    )


async def note_doubt(tx: contract.Tx, *, attempt: Attempt, now: datetime.datetime) -> None:
    """Nobody knows whether it was done; since when is kept from the first time."""
    await _set(
        tx, attempt, "doubted_at = COALESCE(doubted_at, ?)", clock.to_micros(now), before=State.SENT
    )


async def note_look(
    tx: contract.Tx, *, attempt: Attempt, clean_answers: int, now: datetime.datetime
) -> None:
    """It was looked for, with so many clean answers in a row."""
    await _set(
        tx,
        attempt,
        "looked_up_at = ?, clean_answers = ?",
        clock.to_micros(now),
        clean_answers,
    )


async def note_progress(
    tx: contract.Tx, *, attempt: Attempt, is_done: bool, now: datetime.datetime
) -> None:
    """The provider was asked how what it accepted is doing."""
    await _set(
        tx,
        attempt,
        "looked_up_at = ?, clean_answers = clean_answers + 1, "
        "progress = CASE WHEN ? = 1 THEN NULL ELSE progress END",
        clock.to_micros(now),
        int(is_done),
    )


async def wipe(tx: contract.Tx, *, attempt: Attempt) -> None:
    """Its machine is a node: nobody needs its first-boot data again."""
    await _set(tx, attempt, "first_boot = NULL, kek_id = NULL, progress = NULL")


def said(fault: outcomes.Fault) -> str:
    """The sentence of a refusal, with what it is about, alternatives and where it is mended."""
    about = f" ({fault.topic.value})" if fault.topic is not outcomes.Topic.OTHER else ""
    hints = f" There may be room in: {', '.join(fault.hints)}." if fault.hints else ""
    link = f" See {fault.link}" if fault.link else ""
    return f"{fault}{about}{hints}{link}"


def sealed_name(operation_id: str, attempt: int) -> str:
    """The name under which an attempt's first-boot data is sealed."""
    return f"cloud-attempt:{operation_id}:{attempt}"


def digest_of(request: provider.Request) -> bytes:
    """SHA-256 over everything that is sent."""
    content = {**request_to_json(request), "first_boot": request.first_boot}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()


def request_to_json(request: provider.Request) -> Mapping[str, Any]:
    """The order without its first-boot data."""
    content = dataclasses.asdict(request)
    del content["first_boot"]
    ssh = content["ssh"]
    if ssh is not None and ssh["until"] is not None:
        ssh["until"] = times.to_rfc3339(ssh["until"])
    return content


def request_of_json(content: Mapping[str, Any]) -> provider.Request:
    """The order that `request_to_json` stored; first-boot data is empty."""
    fields = dict(content)
    ssh = fields.pop("ssh")
    until = None if ssh is None else ssh["until"]
    return provider.Request(
        **{
            **fields,
            "owner": provider.Owner(**fields["owner"]),
            "volumes": tuple(fields["volumes"]),
            "addresses": tuple(fields["addresses"]),
        },
        ssh=None
        if ssh is None
        else provider.Ssh(
            public_key=ssh["public_key"],
            sources=tuple(ssh["sources"]),
            until=None if until is None else times.from_rfc3339(until),
        ),
        first_boot="",
    )


async def _set(
    tx: contract.Tx,
    attempt: Attempt,
    settings: str,
    *values: object,
    before: State | None = None,
) -> None:
    condition = "" if before is None else " AND state = ?"
    changed = await tx.execute(
        f"UPDATE cloud_attempts SET {settings} WHERE operation_id = ? AND attempt = ?{condition}",  # noqa: S608 - constants
        *values,
        attempt.operation_id,
        attempt.attempt,
        *(() if before is None else (before.value,)),
    )
    if changed != 1:
        raise NotSettled("An attempt stands elsewhere than was thought.")


def _of_row(row: contract.Row) -> Attempt:
    return Attempt(
        operation_id=row["operation_id"],
        attempt=int(row["attempt"]),
        machine_id=row["machine_id"],
        request=request_of_json(json.loads(row["request"])),
        enrollment_id=row["enrollment_id"],
        state=State(row["state"]),
        outcome=row["outcome"],
        topic=row["topic"],
        code=row["code"],
        reason=row["reason"],
        provider_ref=row["provider_ref"],
        progress=row["progress"],
        clean_answers=int(row["clean_answers"]),
        looked_up_at=_moment(row["looked_up_at"]),
        written_at=clock.from_micros(row["written_at"]),
        sent_at=_moment(row["sent_at"]),
        doubted_at=_moment(row["doubted_at"]),
        settled_at=_moment(row["settled_at"]),
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
