"""What one fake Hetzner project holds: things, actions in their time, a budget of calls, pages."""

import dataclasses
import datetime
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provisioning.hetzner import closed
from runtime_kit import clock as clock_kit
from tests.support.clouds import hetzner_shapes as shapes
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit
from tests.support.clouds import server

HOURLY_CALLS = 3600
MOST_PER_PAGE = 50
_SELECTOR = re.compile(r"([A-Za-z0-9._/-]+)==?([A-Za-z0-9._-]*)")

Json = dict[str, Any]


class Refused(Exception):
    """What is answered with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclasses.dataclass(slots=True)
class Action:
    """One action; it ends at `until`, well, or with `error`."""

    number: int
    command: str
    started: datetime.datetime
    until: datetime.datetime
    resources: list[tuple[str, int]]
    error: tuple[str, str] | None = None
    ended: Callable[[], None] | None = None


class Project:
    """State and time. `tokens` says what each token may: `rw` or `ro`."""

    def __init__(self, *, clock: clock_kit.Clock, action_seconds: float = 5.0) -> None:
        self.clock = clock
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.tokens = {
            "hz-token-of-the-tests-0123456789": "rw",
            "hz-reading-token-0123456789": "ro",
        }
        self.action_seconds = action_seconds
        self.server_limit = 5000
        self.heeds_shutdowns = True
        self.sold_out: set[tuple[str, str]] = set()
        self.ends: dict[str, datetime.datetime] = {}  # of server types
        self.gone_types: set[str] = set()
        self.budget = float(HOURLY_CALLS)
        self.on_list: Callable[[int], None] | None = None  # told the page before it is made
        self._budget_at = clock.monotonic()
        self.numbers = itertools.count(1_000_001)
        self.servers: dict[int, Json] = {}
        self.volumes: dict[int, Json] = {}
        self.primary_ips: dict[int, Json] = {}
        self.ssh_keys: dict[int, Json] = {}
        self.firewalls: dict[int, Json] = {}
        self.networks: dict[int, Json] = {}
        self.snapshots: dict[int, Json] = {}
        self.actions: dict[int, Action] = {}
        self.busy: dict[str, datetime.datetime] = {}

    # --- time -------------------------------------------------------------------------------

    @property
    def now(self) -> datetime.datetime:
        """The fake's own time."""
        return self.script.now(self.clock)

    def settle(self) -> None:
        """Ends whatever is over by now."""
        for action in self.actions.values():
            if action.ended is not None and action.until <= self.now:
                ended, action.ended = action.ended, None
                ended()

    def take_budget(self) -> bool:
        elapsed, self._budget_at = self.clock.monotonic() - self._budget_at, self.clock.monotonic()
        self.budget = min(float(HOURLY_CALLS), self.budget + elapsed)  # one a second, steadily
        if self.budget < 1:
            return False
        self.budget -= 1
        return True

    def budget_headers(self) -> dict[str, str]:
        missing = HOURLY_CALLS - self.budget
        return {
            "ratelimit-limit": str(HOURLY_CALLS),
            "ratelimit-remaining": str(int(self.budget)),
            "ratelimit-reset": str(int(self.now.timestamp() + missing)),
        }

    def act(
        self,
        command: str,
        *resources: tuple[str, int],
        seconds: float | None = None,
        ended: Callable[[], None] | None = None,
        error: tuple[str, str] | None = None,
    ) -> Action:
        lasts = datetime.timedelta(seconds=self.action_seconds if seconds is None else seconds)
        action = Action(
            number=next(self.numbers),
            command=command,
            started=self.now,
            until=self.now + lasts,
            resources=list(resources),
            error=error,
            ended=ended,
        )
        self.actions[action.number] = action
        return action

    def shown(self, action: Action) -> Json:
        is_over = action.until <= self.now
        status = "running" if not is_over else "error" if action.error else "success"
        return shapes.action(
            action.number,
            command=action.command,
            status=status,
            started=action.started,
            finished=action.until if is_over else None,
            resources=action.resources,
            error=action.error if is_over else None,
        )

    # --- lists ------------------------------------------------------------------------------

    def list_(self, asked: server.Asked, many: str, held: Mapping[int, Json]) -> server.Reply:
        return self.listed(asked, many, held.values())

    def listed(self, asked: server.Asked, many: str, held: Iterable[Json]) -> server.Reply:
        number = int(asked.first("page", "1"))
        found = [one for one in held if self._is_asked_for(asked, one)]
        asked_for = min(int(asked.first("per_page", "25")), MOST_PER_PAGE)
        per_page = min(asked_for, self.script.page_size or asked_for)
        shown, meta = shapes.page(found, number=number, per_page=per_page)
        return server.Reply(document={many: shown, "meta": meta})

    def _is_asked_for(self, asked: server.Asked, one: Json) -> bool:
        if "name" in asked.query and one["name"] != asked.first("name"):
            return False
        if "fingerprint" in asked.query and one["fingerprint"] != asked.first("fingerprint"):
            return False
        if "type" in asked.query and one["type"] not in asked.query["type"]:
            return False
        if "architecture" in asked.query and one["architecture"] not in asked.query["architecture"]:
            return False
        for term in filter(None, asked.first("label_selector").split(",")):
            matched = _SELECTOR.fullmatch(term)
            if matched is None:
                raise Refused("invalid_input", f"label_selector: expected comma in {term!r}")
            if one["labels"].get(matched[1]) != matched[2]:
                return False
        return True

    def seen_servers(self) -> Mapping[int, Json]:
        return {
            number: one
            for number, one in self.servers.items()
            if self.age(one) >= self.script.list_lag
        }

    def age(self, one: Json) -> float:
        born = datetime.datetime.fromisoformat(one["created"])
        return (self.now - born).total_seconds()

    def get(self, asked: server.Asked, key: str, held: Mapping[int, Json]) -> server.Reply:
        return server.Reply(document={key: self.one_of(asked, held)})

    def one_of(self, asked: server.Asked, held: Mapping[int, Json]) -> Json:
        number = int(asked.path.split("/")[3])
        if number not in held:
            raise Refused("not_found", f"{number} was not found")
        return held[number]

    def note(self, number: int, kind: str, one: Json, place: str, *, hourly: int = 0) -> None:
        """Writes a new thing into the ledger, unless it serves all machines, of no order."""
        if closed.SHARED in one["labels"]:
            return
        self.ledger.things[str(number)] = ledger_kit.Thing(
            ref=str(number),
            kind=kind,
            name=one["name"] or one.get("description", ""),
            tags=one["labels"],
            region=place,
            born=self.now,
            hourly_micros=hourly,
        )

    def end_thing(self, held: dict[int, Json], number: int) -> None:
        """Takes a thing away."""
        del held[number]
        if str(number) in self.ledger.things:
            self.ledger.things[str(number)].died = self.now

    def primary_ip(
        self,
        kind: str,
        *,
        name: str,
        place: str,
        auto_delete: bool,
        labels: Mapping[str, str] | None = None,
    ) -> Json:
        """A new primary address."""
        number = next(self.numbers)
        made: Json = {
            "id": number,
            "name": name,
            "type": kind,
            "ip": f"192.0.2.{number % 250 + 1}" if kind == "ipv4" else f"2001:db8:{number:x}::/64",
            "assignee_id": None,
            "assignee_type": "server",
            "auto_delete": auto_delete,
            "blocked": False,
            "created": shapes.stamp(self.now),
            "datacenter": shapes.datacenter(place),
            "location": shapes.location(place),
            "dns_ptr": [],
            "labels": dict(labels or {}),
            "protection": {"delete": False},
        }
        self.primary_ips[number] = made
        self.note(number, "address", made, place, hourly=800 if kind == "ipv4" else 0)
        return made
