"""The last order that was taken, how far it has come, and what became of the last change.

An order is written down before anything of it is done. `taken` means that nothing has changed yet:
cut off there, the very same order may be given again, and no other with its number. `begun` means
that the release may have changed: whoever starts next brings it to its end.
"""

import dataclasses
import enum

from root_helper import places as places_kit
from root_helper import refusals
from wire_protocol import strict_json

MOST_TRIES = 3  # a release that takes the machine down with it is not tried for ever


class Stage(enum.StrEnum):
    """How far an order has come."""

    TAKEN = "taken"
    BEGUN = "begun"
    ENDED = "ended"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LastOrder:
    """One order, as it stands on the disk."""

    number: tuple[int, int]
    sha256: str
    stage: Stage
    to: str = ""
    back: str = ""
    tries: int = 0

    def is_repeated_by(self, sha256: str) -> bool:
        """Whether it is this very order, of which nothing was done yet."""
        return self.stage is Stage.TAKEN and self.sha256 == sha256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the last change of release."""

    number: tuple[int, int]
    end: str
    release: str
    reason: str
    at: str

    def to_wire(self) -> dict[str, object]:
        """As `status` tells it."""
        return {
            "epoch": self.number[0],
            "sequence": self.number[1],
            "end": self.end,
            "release": self.release,
            "reason": refusals.printable(self.reason)[:512],
            "at": self.at,
        }


def read(places: places_kit.Places) -> LastOrder | None:
    """The last one; None before the first. Raises `Damaged`."""
    fields = places_kit.read(places.orders)
    if fields is None:
        return None
    try:
        with strict_json.judged():
            return LastOrder(
                number=(fields.integer("epoch"), fields.integer("sequence")),
                sha256=fields.text("sha256", most=64),
                stage=Stage(fields.text("stage", most=16)),
                to=fields.text("to", most=80),
                back=fields.text("back", most=80),
                tries=fields.integer("tries", most=1000),
            )
    except strict_json.Malformed as error:
        raise places_kit.Damaged(f"{places.orders} is damaged: {error}") from error


def write(places: places_kit.Places, order: LastOrder) -> None:
    """Replaces it in one step."""
    places_kit.write(
        places.orders,
        {
            "epoch": order.number[0],
            "sequence": order.number[1],
            "sha256": order.sha256,
            "stage": order.stage.value,
            "to": order.to,
            "back": order.back,
            "tries": order.tries,
        },
    )


def read_outcome(places: places_kit.Places) -> dict[str, object] | None:
    """What became of the last change, as `status` tells it; None before the first."""
    fields = places_kit.read(places.outcome)
    if fields is None:
        return None
    try:
        return Outcome(
            number=(fields.integer("epoch"), fields.integer("sequence")),
            end=fields.text("end", most=32),
            release=fields.text("release", most=80),
            reason=fields.text("reason", most=512),
            at=fields.text("at", most=40),
        ).to_wire()
    except strict_json.Malformed as error:
        raise places_kit.Damaged(f"{places.outcome} is damaged: {error}") from error


def write_outcome(places: places_kit.Places, outcome: Outcome) -> None:
    """Replaces it in one step."""
    places_kit.write(places.outcome, outcome.to_wire())
