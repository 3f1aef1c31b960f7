"""The Agent of a node that dials out: one session on the gateway, and no port at all."""

import asyncio

from runtime_kit import supervise
from worker_agent.app import parts as parts_kit
from worker_agent.session import client
from worker_agent.settings import failures


async def run(parts: parts_kit.Parts) -> None:
    """Holds the session until told to stop; raises `NeedsOperator` where only a person can help."""
    session = client.Client(parts.where, around=parts.around)
    parts.carrying.renew = lambda new_key: session.renew(new_key=new_key)
    stop, ended = parts_kit.stop_signal(parts), _Ended()
    parts_kit.tell_ready(parts, port=None)
    try:
        await supervise.run(
            {
                "session": lambda: ended.watch(session.run, stop=stop),
                "orders": parts.work.run,
                "trust-refresh": parts.keeping.run,
                "trust-watch": parts.keeping.watch,
                "mesh": parts.mesh.run,
            },
            stop=stop,
        )
    finally:
        failure = ended.failure
        parts.around.teller.tell(
            state="stopped",
            reason=None if failure is None else str(failure),
            kind=None if failure is None else "needs-operator",
        )
    if ended.failure is not None:
        raise ended.failure


class _Ended:
    """How a part ended that may end by a failure which a person must settle."""

    def __init__(self) -> None:
        self.failure: failures.Failure | None = None

    async def watch(self, work: supervise.Work, *, stop: asyncio.Event) -> None:
        """Runs it; its failure ends the program with that failure's sentence and exit code."""
        try:
            await work()
        except failures.Failure as failure:
            self.failure = failure
            stop.set()
