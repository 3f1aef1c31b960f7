"""A join inside the test's own process: with its own clock, and every word that it tells."""

import dataclasses
import pathlib
import random
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from runtime_kit import secret as secret_kit
from tests.support import clocks
from worker_agent.enrollment import flow, outcome, plan, stored, surroundings, wish
from worker_agent.settings import paths


@dataclasses.dataclass(slots=True, kw_only=True)
class Joining:
    """One machine-to-be and what its join told."""

    folder: pathlib.Path
    clock: clock_kit.Clock = dataclasses.field(default_factory=clocks.ShiftedClock)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warned: list[str] = dataclasses.field(default_factory=list)
    said: list[str] = dataclasses.field(default_factory=list)

    @property
    def where(self) -> paths.Paths:
        """Its files."""
        return paths.Paths(folder=self.folder)

    async def join(
        self, join_token: str, *, port: int | None = None, more: wish.Given | None = None
    ) -> outcome.Outcome:
        """Joins; raises the `Failure` that the command would print."""
        given = dataclasses.replace(
            more or wish.Given(),
            join_token=secret_kit.Secret(join_token),
            addresses=("127.0.0.1",) if port else (),
            port=port,
        )
        return await self.join_by(given)

    async def join_by(self, given: wish.Given) -> outcome.Outcome:
        """Joins by exactly these arguments."""
        decided = plan.decide(wish.parse(given), stored=stored.read(self.where))
        assert isinstance(decided, plan.Join)
        around = surroundings.Surroundings(
            clock=self.clock,
            chance=random.Random(1),
            environment=self.environment,
            warn=self.warned.append,
            say=self.said.append,
        )
        return await flow.join(decided, where=self.where, around=around)
