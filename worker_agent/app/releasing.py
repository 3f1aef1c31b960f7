"""Orders that change which release this machine runs: fetched here, carried out by the root helper.

The staged archive is removed whatever came of it; the helper has its own copy by then. What is
handed on ends this Agent, so the result stands on the disk before the helper is let go.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from wire_protocol import helper_protocol as helper
from wire_protocol import orders, strict_json, updates
from worker_agent.app import logs
from worker_agent.orders import archive, journal, root_helper, work
from worker_agent.settings import failures, paths

LOGGER = logging.getLogger(__name__)


class Releasing:
    """The two kinds of such orders."""

    def __init__(
        self, where: paths.Paths, *, using: root_helper.RootHelper, around: archive.Around
    ) -> None:
        self._where = where
        self._helper = using
        self._around = around

    def tidy(self) -> None:
        """Removes what an Agent that was killed left staged; for the start. Never raises."""
        try:
            archive.clear(self._where)
        except OSError as error:
            logs.warning(LOGGER, "A staged archive was not removed", reason=error.strerror)

    def kinds(self) -> dict[str, work.HandOn]:
        """What is handed on, by its name."""
        return {orders.Kind.UPDATE: self._update, orders.Kind.ROLL_BACK: self._roll_back}

    async def _update(self, entry: journal.Entry) -> work.Handed:
        with _understood():
            wanted = updates.parse_update(entry.content)
        self._helper.require()
        try:
            path = await archive.fetch(self._where, wanted, around=self._around)
            with root_helper.opened(path) as file:
                staged = await self._helper.hand(helper.Verb.UPDATE, _signed(entry), archive=file)
        finally:
            await asyncio.to_thread(archive.clear, self._where)
        return work.Handed(
            detail=f"staged: {staged.release} runs once this Agent has ended.",
            let_go=staged.let_go,
        )

    async def _roll_back(self, entry: journal.Entry) -> work.Handed:
        with _understood():
            updates.require_roll_back(entry.content)
        staged = await self._helper.hand(helper.Verb.ROLL_BACK, _signed(entry), archive=None)
        return work.Handed(
            detail=f"staged: {staged.release} runs again once this Agent has ended.",
            let_go=staged.let_go,
        )


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except strict_json.Malformed as error:
        raise failures.Refused(f"The order cannot be carried out: {error}") from error


def _signed(entry: journal.Entry) -> orders.SignedOrder:
    if entry.signed is None:  # taken by an older Agent, which did not keep it
        raise failures.Refused("The order's signature was not kept. Give it again.")
    return entry.signed
