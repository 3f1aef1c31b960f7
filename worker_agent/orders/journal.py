"""`orders.json`: the last order's number, the orders at hand, and what became of the latest.

The number is written before an order is answered for or acted on, so none is carried out twice,
whatever is killed in between. A result stays until it is pushed out by `MOST_ENDED` later ones,
since the Platform may ask for it again. Values are never changed in place: what could not be
written did not happen.
"""

import dataclasses
import datetime
import enum
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from wire_protocol import orders, strict_json, times
from worker_agent.settings import documents

MOST_WAITING = 64
MOST_ENDED = 64
_MOST_CONTENT = 65_536
_MOST_SIGNED = 4 * 65_536  # an order in base64 with its signatures
_LONGEST_DETAIL = 1024


class Stage(enum.StrEnum):
    """How far an order has come on this machine."""

    TAKEN = "taken"  # written down; not begun
    BEGUN = "begun"  # whoever finds this after a start does not know whether it took effect
    DONE = "done"
    FAILED = "failed"


_ENDED = (Stage.DONE, Stage.FAILED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One order at hand. `is_told`: the Platform has stored the result.

    `signed` is kept where the order is handed on, since whoever carries it out verifies it again.
    """

    number: tuple[int, int]
    kind: str
    content: Mapping[str, Any] = dataclasses.field(repr=False)
    expires_at: datetime.datetime
    stage: Stage = Stage.TAKEN
    detail: str = ""
    is_told: bool = False
    signed: orders.SignedOrder | None = dataclasses.field(default=None, repr=False)

    @property
    def result(self) -> orders.Result | None:
        """What became of it, once that is known."""
        if self.stage not in _ENDED:
            return None
        return orders.Result(
            epoch=self.number[0],
            sequence=self.number[1],
            is_done=self.stage is Stage.DONE,
            detail=self.detail,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """All entries by their numbers, and the number of the last order that was taken."""

    last: tuple[int, int] = (0, 0)
    entries: tuple[Entry, ...] = ()

    def find(self, number: tuple[int, int]) -> Entry | None:
        """The entry of that number."""
        return next((one for one in self.entries if one.number == number), None)

    def first(self, stage: Stage) -> Entry | None:
        """The lowest entry that has come so far."""
        return next((one for one in self.entries if one.stage is stage), None)

    def untold(self) -> Entry | None:
        """The lowest entry with a result that the Platform has not stored."""
        return next((one for one in self.entries if one.stage in _ENDED and not one.is_told), None)

    @property
    def waiting(self) -> int:
        """How many have not ended."""
        return sum(one.stage not in _ENDED for one in self.entries)

    def taken(self, entry: Entry) -> "Journal":
        """With one more, the last from now on."""
        return self._bounded(last=entry.number, entries=(*self.entries, entry))

    def changed(self, entry: Entry) -> "Journal":
        """With the entry in the place of the one of its number."""
        entries = tuple(entry if one.number == entry.number else one for one in self.entries)
        return self._bounded(last=self.last, entries=entries)

    def _bounded(self, *, last: tuple[int, int], entries: tuple[Entry, ...]) -> "Journal":
        ended = [one.number for one in entries if one.stage in _ENDED]
        dropped = set(ended[: max(0, len(ended) - MOST_ENDED)])
        return Journal(
            last=last, entries=tuple(one for one in entries if one.number not in dropped)
        )


def read(path: pathlib.Path) -> Journal:
    """The journal, an empty one before the first order; raises `Damaged`."""
    fields = documents.read(path)
    if fields is None:
        return Journal()
    try:
        entries = tuple(
            _entry(strict_json.Fields(one, what=f"{path}: order"))
            for one in fields.items("orders", most=MOST_WAITING + MOST_ENDED + 1)
        )
        return Journal(
            last=(fields.integer("epoch"), fields.integer("sequence")),
            entries=tuple(sorted(entries, key=lambda one: one.number)),
        )
    except ValueError as error:
        raise documents.Damaged(f"{path} is damaged: {error}") from error


def write(path: pathlib.Path, journal: Journal) -> None:
    """Replaces the file in one step; raises `OSError` and leaves the old one where it cannot."""
    documents.write(
        path,
        {
            "epoch": journal.last[0],
            "sequence": journal.last[1],
            "orders": [
                {
                    "epoch": one.number[0],
                    "sequence": one.number[1],
                    "kind": one.kind,
                    "content": json.dumps(dict(one.content)),
                    "expires_at": times.to_rfc3339(one.expires_at),
                    "stage": one.stage.value,
                    "detail": one.detail[:_LONGEST_DETAIL],
                    "told": one.is_told,
                    **({} if one.signed is None else {"signed": one.signed.to_bytes().decode()}),
                }
                for one in journal.entries
            ],
        },
    )


def _entry(fields: strict_json.Fields) -> Entry:
    content = json.loads(fields.text("content", most=_MOST_CONTENT))
    if not isinstance(content, dict):
        raise strict_json.Malformed("The content of an order must be a JSON object.")
    return Entry(
        number=(fields.integer("epoch"), fields.integer("sequence")),
        kind=fields.text("kind", most=64),
        content=content,
        expires_at=fields.moment("expires_at"),
        stage=Stage(fields.text("stage", most=16)),
        detail=fields.text("detail", most=_LONGEST_DETAIL),
        is_told=fields.boolean("told"),
        signed=orders.parse_signed(fields.text("signed", most=_MOST_SIGNED).encode())
        if fields.has("signed")
        else None,
    )
