"""The Agent of a node that listens: answers on its port, and runs errands on the gateway."""

import contextlib
import functools
import logging
import ssl
from collections.abc import AsyncIterator

from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from runtime_kit.http1 import limits, server
from wire_protocol import orders as wire_orders
from worker_agent.app import anchors, keeper, logs, port_door
from worker_agent.app import parts as parts_kit
from worker_agent.door import port
from worker_agent.session import errands, upkeep
from worker_agent.settings import failures

LOGGER = logging.getLogger(__name__)
_DRAIN_SECONDS = 5.0  # the Platform's question takes milliseconds; systemd waits 90 s
_LOG_SECONDS = 60.0  # strangers who knock may fill one line a minute, not the disk
_LIMITS = limits.Limits(
    sockets=128,  # one Platform with a few engines; the rest are strangers
    in_work=16,
    head_bytes=8192,
    body_bytes=2 * wire_orders.MAX_BYTES,  # an order in base64, with its signatures
    idle_s=45.0,  # longer than the Platform's probing interval, so that a connection is kept
)


async def run(parts: parts_kit.Parts) -> None:
    """Answers until told to stop; raises `Temporary` where another program has the port."""
    number = parts.joined.agent.port
    door = port_door.Door(
        parts.answers, work=parts.around.work, trusted=parts.trusted, clock=parts.around.clock
    )
    errands_of_it = upkeep.Upkeep(parts.where, around=parts.around)
    parts.carrying.renew = lambda new_key: errands_of_it.renew(new_key=new_key)
    knocks = Knocks(parts.keeping, clock=parts.around.clock)
    parts.mesh.session_opened(functools.partial(errands.ask, parts.where, around=parts.around))
    stop = parts_kit.stop_signal(parts)
    async with _port_open(number, door=door, knocks=knocks, trusted=parts.trusted):
        parts_kit.tell_ready(parts, port=number)
        if not parts.trusted.key_ids():
            logs.warning(LOGGER, "No trust key is valid now, every client is refused until one is")
        await supervise.run(
            {
                "trust-refresh": parts.keeping.run,
                "trust-watch": parts.keeping.watch,
                "upkeep": errands_of_it.run,
                "mesh": parts.mesh.run,
                "orders": parts.work.run,
            },
            stop=stop,
        )


@contextlib.asynccontextmanager
async def _port_open(
    number: int, *, door: port_door.Door, knocks: "Knocks", trusted: anchors.Anchors
) -> AsyncIterator[None]:
    sockets = port.hold(number)
    if sockets is None:
        raise failures.Temporary(
            f"Port {number} is in use by another program. Stop it, then start the Agent again."
        )
    serving = server.Server(
        door.answer, limits=_LIMITS, tls=trusted.context, handshake_failed=knocks.failed
    )
    try:
        for listener in sockets:
            serving.start(listener)
        yield
    finally:
        await serving.drain(timeout_s=_DRAIN_SECONDS)
        for listener in sockets:
            listener.close()


class Knocks:
    """Failed handshakes: an unknown authority may be a new trust key, the rest are strangers."""

    def __init__(self, keeping: keeper.Keeper, *, clock: clock_kit.Clock) -> None:
        self._keeping = keeping
        self._clock = clock
        self._told: float | None = None

    def failed(self, error: OSError, peer: str) -> None:
        """Takes note of one failed handshake."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            return
        self._keeping.unknown_key()
        now = self._clock.monotonic()
        if self._told is None or now - self._told >= _LOG_SECONDS:
            self._told = now
            logs.warning(
                LOGGER,
                "A client's certificate is by no trust key held here",
                peer=peer,
                reason=error.verify_message,
            )
