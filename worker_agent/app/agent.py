"""The Agent's composition root: builds the parts, runs them as named tasks, ends them cleanly.

Everything it needs is on the disk from the join; it never needs a token, and an outage of the
Platform changes nothing here: identity, pins and trust set stay as they are (F16). It listens on a
port, or it dials out and opens none; the questions and orders are the same.
"""

import logging
import os
import random
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from worker_agent.app import logs, parts
from worker_agent.identity import lock, own, replacing
from worker_agent.settings import agent_file, modes, paths

LOGGER = logging.getLogger(__name__)


async def run(
    where: paths.Paths,
    *,
    clock: clock_kit.Clock,
    chance: random.Random,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Runs the Agent until SIGTERM or SIGINT.

    Raises a `Failure` where it cannot start, and `NeedsOperator` where it runs no further without
    a person; what the machine holds is then as it was.
    """
    modes.tighten(where, warn=lambda text: logs.warning(LOGGER, text))
    parts.load(where)  # before anything is written into what may be no data directory
    with lock.held(
        where.agent_lock, busy=f"Another Agent runs already with the data directory {where.folder}."
    ):
        joined = parts.load(where)
        await _finish_renewal(where, clock=clock)
        built = parts.build(
            where, joined=joined, clock=clock, chance=chance, environment=environment
        )
        if joined.agent.connectivity is agent_file.Connectivity.DIAL_OUT:
            from worker_agent.app import dialling_out  # noqa: PLC0415 - a mode costs a megabyte

            await dialling_out.run(built)
        else:
            from worker_agent.app import listening  # noqa: PLC0415 - likewise

            await listening.run(built)
    logs.info(LOGGER, "Agent stopped", node_id=joined.agent.node_id)


async def _finish_renewal(where: paths.Paths, *, clock: clock_kit.Clock) -> None:
    """A renewal that was cut off between its two files is finished; otherwise it can wait."""
    if not own.is_half_replaced(where):
        return
    try:
        async with lock.waited_for(where, clock=clock):
            replacing.finish(where)
    except OSError as error:
        logs.warning(LOGGER, "A renewal could not be finished", reason=error.strerror)
