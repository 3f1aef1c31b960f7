"""Several addresses of one server of the Platform: one that is silent among others is no failure.

The Agent tries each address until one answers, so while one does, a silent one costs it a moment
and nothing else; where none answers, each of them has failed. Whoever answers with another key, or
out of shape, is told as it is, whatever the others say.

Each address is asked once, however many questions want to know of it.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence

from wire_protocol import findings, problems
from worker_agent.doctor import legs

Found = tuple[findings.Finding, ...]
Ask = Callable[[legs.Leg], Awaitable[Found]]


class Several:
    """The addresses of one server, each asked by `ask`, all judged together."""

    def __init__(self, ways: Sequence[legs.Leg], *, ask: Ask) -> None:
        self._ways = tuple(ways)
        self._ask = ask
        self._asked: Mapping[str, asyncio.Task[Found]] | None = None

    async def of(self, leg: legs.Leg) -> Found:
        """What is found at this address."""
        return await self.judged(await asyncio.shield(self._tasks()[leg.name]))

    async def judged(self, found: Found) -> Found:
        """What was found of one of them, milder where it may pass and another address answers."""
        if not any(_may_pass(one) for one in found) or not await self._one_answers():
            return found
        return tuple(_milder(one) if _may_pass(one) else one for one in found)

    async def _one_answers(self) -> bool:
        tasks = self._tasks()
        await asyncio.wait(tasks.values())
        return any(
            not task.cancelled()
            and task.exception() is None
            and findings.status_of(task.result()) is not findings.Status.FAILED
            for task in tasks.values()
        )

    def _tasks(self) -> Mapping[str, asyncio.Task[Found]]:
        if self._asked is None:
            self._asked = {leg.name: asyncio.create_task(self._one(leg)) for leg in self._ways}
        return self._asked

    async def _one(self, leg: legs.Leg) -> Found:
        return await self._ask(leg)


def _may_pass(finding: findings.Finding) -> bool:
    failed = finding.status is findings.Status.FAILED
    return failed and finding.kind is problems.Kind.TRANSIENT


def _milder(finding: findings.Finding) -> findings.Finding:
    return dataclasses.replace(
        finding,
        status=findings.Status.WARNING,
        detail=f"{finding.detail} Another address answers, and is used instead.",
    )
