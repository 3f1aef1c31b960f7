"""Reads the action log: pages newest first, and the whole chain for verification."""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.audit import actions, retention
from platform_server.store import contract
from runtime_kit import clock as clock_kit

_BATCH: Final = 500


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry as it stands in the log."""

    seq: int
    at: datetime.datetime
    actor: str
    action: str
    target: str
    operation: str | None
    infra: str
    environment: str
    mfa_verified: bool
    details: Mapping[str, Any]
    previous_hash: bytes
    hash: bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which entries a page shows; None shows all."""

    actor: str | None = None
    action: str | None = None
    infra: str | None = None
    since: datetime.datetime | None = None
    before_seq: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What walking the chain showed. `broken_at` is the first entry that does not fit."""

    entries: int
    first_seq: int | None
    last_seq: int | None
    last_hash: bytes | None
    broken_at: int | None
    fault: str


async def list_page(tx: contract.Tx, *, limit: int, chosen: Filter) -> list[Entry]:
    """Entries, newest first."""
    wheres, values = ["seq < ?"], [2**63 - 1 if chosen.before_seq is None else chosen.before_seq]
    conditions: list[tuple[str, object]] = [
        ("actor = ?", chosen.actor),
        ("action = ?", chosen.action),
        ("infra = ?", chosen.infra),
        ("at >= ?", None if chosen.since is None else clock_kit.to_micros(chosen.since)),
    ]
    given: list[object] = list(values)
    for condition, value in conditions:
        if value is not None:
            wheres.append(condition)
            given.append(value)
    rows = await tx.fetch_all(
        f"SELECT {actions.COLUMNS} FROM action_log WHERE {' AND '.join(wheres)} "  # noqa: S608 - bound
        "ORDER BY seq DESC LIMIT ?",
        *given,
        limit,
    )
    return [_entry_of(row) for row in rows]


async def verify(store: contract.Store) -> Verdict:
    """Walks the whole chain in small reads; names the first entry that does not fit.

    What is appended meanwhile is walked too; what retention removes behind us does not matter.
    """
    walk = _Walk()
    while await walk.step(store):
        pass
    return walk.verdict


class _Walk:
    """One walk along the chain."""

    def __init__(self) -> None:
        self._entries = 0
        self._first: int | None = None
        self._seq = 0
        self._hash = actions.FIRST_HASH
        self._broken: tuple[int, str] | None = None
        self._begun = False

    @property
    def verdict(self) -> Verdict:
        """What has been seen so far."""
        return Verdict(
            entries=self._entries,
            first_seq=self._first,
            last_seq=self._seq if self._entries else None,
            last_hash=self._hash if self._entries else None,
            broken_at=None if self._broken is None else self._broken[0],
            fault="" if self._broken is None else self._broken[1],
        )

    async def step(self, store: contract.Store) -> bool:
        """Takes the next rows; says whether there may be more."""
        rows = await store.read(self._read)
        for row in rows:
            fault = self._judge(row)
            if fault is not None:
                self._broken = (int(row["seq"]), fault)
                return False
        return len(rows) == _BATCH

    async def _read(self, tx: contract.Tx) -> list[contract.Row]:
        if not self._begun:
            anchor = await retention.find_anchor(tx)
            if anchor is not None:
                self._seq, self._hash = anchor.seq, anchor.hash
            self._begun = True
        return list(
            await tx.fetch_all(
                f"SELECT {actions.COLUMNS} FROM action_log WHERE seq > ? ORDER BY seq LIMIT ?",  # noqa: S608 - a constant
                self._seq if self._entries else -1,
                _BATCH,
            )
        )

    def _judge(self, row: contract.Row) -> str | None:
        seq = int(row["seq"])
        if seq != self._seq + 1:
            return f"entry {self._seq + 1} is missing before entry {seq}"
        if bytes(row["previous_hash"]) != self._hash:
            return f"entry {seq} does not follow the entry before it"
        fields = (
            seq,
            int(row["at"]),
            row["actor"],
            row["action"],
            row["target"],
            row["operation"],
            row["infra"],
            row["environment"],
            int(row["mfa_verified"]),
            row["details"],
        )
        found = bytes(row["hash"])
        if actions.hash_of(fields, previous=self._hash) != found:
            return f"entry {seq} was changed after it was written"
        self._entries += 1
        self._first = seq if self._first is None else self._first
        self._seq, self._hash = seq, found
        return None


def _entry_of(row: contract.Row) -> Entry:
    return Entry(
        seq=int(row["seq"]),
        at=clock_kit.from_micros(row["at"]),
        actor=row["actor"],
        action=row["action"],
        target=row["target"],
        operation=row["operation"],
        infra=row["infra"],
        environment=row["environment"],
        mfa_verified=bool(row["mfa_verified"]),
        details=json.loads(row["details"]),
        previous_hash=bytes(row["previous_hash"]),
        hash=bytes(row["hash"]),
    )
