"""What a fake cloud was asked and what it holds: one form for all of them, so one set of asserts.

The fake writes here; tests and the standard asserts (a) to (f) read. Times are the fake's own.
"""

import dataclasses
import datetime
from collections.abc import Mapping

from provisioning import naming


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request. `name` is the call's name in the driver's table, "" for a route unknown."""

    at: datetime.datetime
    name: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(slots=True, kw_only=True)
class Machine:
    """A machine there.

    `user_data` is what cloud-init would be handed, after the decoding; `instance_id` is the id
    that the machine itself would be told, which is not the `ref` everywhere.
    """

    ref: str
    name: str
    tags: Mapping[str, str]
    region: str
    size: str
    born: datetime.datetime
    user_data: bytes = dataclasses.field(default=b"", repr=False)
    died: datetime.datetime | None = None
    hourly_micros: int = 0
    passwords: list[str] = dataclasses.field(default_factory=list, repr=False)  # answered or mailed
    keys: list[str] = dataclasses.field(default_factory=list)  # public keys that let somebody in
    instance_id: str = ""

    def __post_init__(self) -> None:
        self.instance_id = self.instance_id or self.ref


@dataclasses.dataclass(slots=True, kw_only=True)
class Thing:
    """Whatever hangs on machines or stands beside them. `kind` is a `contract.ChildKind`."""

    ref: str
    kind: str
    name: str
    tags: Mapping[str, str]
    region: str
    born: datetime.datetime
    died: datetime.datetime | None = None
    attached_to: str | None = None
    hourly_micros: int = 0


class Ledger:
    """Everything that a fake was asked and holds."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.machines: dict[str, Machine] = {}
        self.things: dict[str, Thing] = {}

    def names(self) -> list[str]:
        """The names of all calls, in order."""
        return [one.name for one in self.seen]

    def count(self, name: str) -> int:
        """How often this call came."""
        return self.names().count(name)

    def living(self, installation: str | None = None) -> list[Machine]:
        """The machines that are there now, of this installation alone where one is named."""
        return [
            one
            for one in self.machines.values()
            if one.died is None and _is_of(one.tags, installation)
        ]

    def living_things(self, installation: str | None = None) -> list[Thing]:
        """What hangs on machines or stands beside them now."""
        return [
            one
            for one in self.things.values()
            if one.died is None and _is_of(one.tags, installation)
        ]

    def cost_micros(self, until: datetime.datetime) -> int:
        """What all that ever lived has cost by then: life times price."""
        total = 0
        billed: list[Machine | Thing] = [*self.machines.values(), *self.things.values()]
        for one in billed:
            seconds = ((one.died or until) - one.born).total_seconds()
            total += round(seconds * one.hourly_micros / 3600)
        return total


def _is_of(tags: Mapping[str, str], installation: str | None) -> bool:
    return installation is None or tags.get(naming.INSTALLATION) == installation
