"""How actions are doing, many in one call: whoever asks while one is under way joins the next.

Known limit: only what asks through the same driver is asked for together.
"""

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Final

from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, shapes

MOST_AT_ONCE: Final = 50

Actions = Mapping[int, Mapping[str, Any]]


class Polls:
    """Collects questions; `close` ends what is under way."""

    def __init__(self, api: api_kit.Api) -> None:
        self._api = api
        self._waiting: list[tuple[tuple[int, ...], asyncio.Future[Actions]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, ids: tuple[int, ...]) -> Actions:
        """These actions as they are now, by id; one that is known no more is missing."""
        answer: asyncio.Future[Actions] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, answer))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._go_on(), name="hetzner polls")
        return await answer

    def close(self) -> None:
        """Ends it; who still waits is cancelled."""
        if self._asking is not None:
            self._asking.cancel()
        for _, answer in self._waiting:
            answer.cancel()

    async def _go_on(self) -> None:  # begins when whoever asks in this turn of the loop has asked
        while self._waiting:
            batch, wanted = [], dict[int, None]()
            while self._waiting and len(wanted) < MOST_AT_ONCE:
                batch.append(self._waiting.pop(0))
                wanted.update(dict.fromkeys(batch[-1][0]))
            try:
                told = await self._api.get(calls.ACTIONS, "/actions", params={"id": list(wanted)})
                actions = shapes.shaped(
                    calls.ACTIONS,
                    functools.partial(_by_id, told),
                )
            except BaseException as fault:
                for _, answer in batch:
                    if answer.done():
                        continue
                    if isinstance(fault, Exception):
                        answer.set_exception(fault)
                    else:
                        answer.cancel()
                if not isinstance(fault, Exception):
                    raise
                continue
            for _, answer in batch:
                if not answer.done():
                    answer.set_result(actions)


def _by_id(told: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {int(one["id"]): one for one in told["actions"]}
