"""What the three small fakes of libcloud's long tail have in common: machines, lags, endings.

Known limit: machines alone, as the adapter offers no more.
"""

import abc
import dataclasses
import datetime
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

from runtime_kit import clock as clock_kit
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit
from tests.support.clouds import server

Routes = tuple[tuple[str, re.Pattern[str], str], ...]


@dataclasses.dataclass(slots=True, kw_only=True)
class Small:
    """One machine. `fails`: what was accepted will come to nothing."""

    ref: str
    name: str
    region: str
    size: str
    image: str
    marks: Any  # tags or metadata, as the provider keeps them
    born: datetime.datetime
    state: str
    fails: bool = False
    is_dying: bool = False


class SmallCloud(abc.ABC):
    """A fake of one provider; a subclass says how it speaks."""

    routes: Routes
    begun: str  # the state of a new machine
    running: str
    hourly_micros = 18_000

    def __init__(self, *, clock: clock_kit.Clock) -> None:
        self.clock = clock
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.machines: dict[str, Small] = {}
        self._numbers = itertools.count(26_837_101)

    # --- what a subclass says ------------------------------------------------------------------

    @abc.abstractmethod
    def handlers(
        self, asked: server.Asked, groups: tuple[str, ...], *, fails: bool
    ) -> Mapping[str, Callable[[], server.Reply]]:
        """What each call does."""

    @abc.abstractmethod
    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """The provider's error."""

    @abc.abstractmethod
    def is_proved(self, asked: server.Asked) -> bool:
        """Whether the request carries the credential."""

    @abc.abstractmethod
    def tags(self, marks: Any) -> Mapping[str, str]:
        """What a machine carries, as the ledger keeps it."""

    def fail(self, machine: Small) -> None:
        """How an accepted order shows that it came to nothing."""
        machine.state = "ERROR"

    # --- the server's side ---------------------------------------------------------------------

    def name_of(self, asked: server.Asked) -> str:
        """The call's name in the driver's table."""
        for method, pattern, name in self.routes:
            if method == asked.method and pattern.fullmatch(asked.path):
                return name
        return ""

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work."""
        if not self.is_proved(asked):
            return self.unauthorized()
        found = next(
            (
                match
                for method, pattern, _ in self.routes
                if method == asked.method and (match := pattern.fullmatch(asked.path))
            ),
            None,
        )
        groups = () if found is None else found.groups()
        handler = self.handlers(asked, groups, fails=async_fail is not None).get(name)
        return self.not_found() if handler is None else handler()

    def unauthorized(self) -> server.Reply:
        """A credential that is none."""
        return self.error(status=401, code="unauthorized", message="Invalid token")

    def rate_limited(self) -> server.Reply:
        """A call too many."""
        return self.error(status=429, code="overLimit", message="Too many requests")

    def not_found(self) -> server.Reply:
        """No such thing."""
        return self.error(status=404, code="itemNotFound", message="Not found")

    # --- machines ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Lets everything under way come to its end."""
        for machine in list(self.machines.values()):
            if machine.is_dying:
                del self.machines[machine.ref]
                self.ledger.machines[machine.ref].died = self.now()
            elif machine.state == self.begun:
                if machine.fails:
                    self.fail(machine)
                else:
                    machine.state = self.running

    def now(self) -> datetime.datetime:
        """The fake's own time."""
        return self.script.now(self.clock)

    def new_ref(self) -> str:
        """The next id."""
        return str(next(self._numbers))

    def make(
        self,
        *,
        name: str,
        region: str,
        size: str,
        image: str,
        marks: Any,
        user_data: bytes,
        fails: bool = False,
    ) -> Small:
        """A new machine."""
        machine = Small(
            ref=self.new_ref(),
            name=name,
            region=region,
            size=size,
            image=image,
            marks=marks,
            born=self.now(),
            state=self.begun,
            fails=fails,
        )
        self.machines[machine.ref] = machine
        self.ledger.machines[machine.ref] = ledger_kit.Machine(
            ref=machine.ref,
            name=name,
            tags=self.tags(marks),
            region=region,
            size=size,
            born=machine.born,
            user_data=user_data,
            hourly_micros=self.hourly_micros,
        )
        return machine

    def seen(self, ref: str) -> Small | None:
        """The machine, if asking by id shows it yet."""
        machine = self.machines.get(ref)
        if machine is None or self._age(machine) < self.script.describe_lag:
            return None
        return machine

    def listed(self) -> list[Small]:
        """The machines that lists show."""
        return [one for one in self.machines.values() if self._age(one) >= self.script.list_lag]

    def remove(self, ref: str) -> server.Reply | None:
        """Has it deleted; the refusal where it is not there."""
        if ref not in self.machines:
            return self.not_found()
        self.machines[ref].is_dying = True
        return None

    def _age(self, machine: Small) -> float:
        return (self.now() - machine.born).total_seconds()


def routes(*rows: tuple[str, str, str]) -> Routes:
    """Routes of method, pattern and name."""
    return tuple(
        (method, re.compile(f"{pattern}/?"), f"{method} {name}") for method, pattern, name in rows
    )
