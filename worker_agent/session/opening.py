"""Opens a session on a link: hello, the generation stored, confirm.

The generation stands on the disk before `confirm` is sent, so a copy of the disk made earlier is
behind for ever, and a machine that was killed in between comes back with a number that the Platform
has given out itself.
"""

import dataclasses
from collections.abc import Callable

from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from runtime_kit.mux import link as links
from wire_protocol import ids, product, session
from worker_agent.identity import lock
from worker_agent.settings import agent_file, documents, failures, paths

HELLO_SECONDS = 20.0  # the Platform may ping another session of this node for 5 s first
CONFIRM_SECONDS = 15.0

WELCOMED = crash_points.declare(
    "session.welcomed", story="The Platform has given a generation; it is not stored yet."
)
STORED = crash_points.declare(
    "session.generation-stored", story="The generation is on the disk and not confirmed."
)
CONFIRMED = crash_points.declare("session.confirmed", story="The session is open.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Self:
    """What this process says of itself in every hello."""

    node_id: ids.NodeId
    instance: str  # random for each start
    statement: tuple[int, int]
    generation: int

    def hello(self, purpose: session.Purpose) -> session.Hello:
        """The opening."""
        return session.Hello(
            node_id=self.node_id,
            generation=self.generation,
            epoch=self.statement[0],
            version=product.VERSION,
            instance=self.instance,
            purpose=purpose,
            statement=self.statement,
        )


async def greet(link: links.Link, *, who: Self, purpose: session.Purpose) -> session.Welcome:
    """The Platform's welcome; for an errand that is all.

    Raises what `Link.ask` raises, and `strict_json.Malformed`.
    """
    said = await link.ask(
        session.Ask.HELLO,
        who.hello(purpose).to_bytes(),
        timeout_s=HELLO_SECONDS,
        max_bytes=session.MAX_BYTES,
    )
    return session.parse_welcome(said)


async def open_session(
    link: links.Link,
    *,
    who: Self,
    where: paths.Paths,
    clock: clock_kit.Clock,
    confirming: Callable[[], None],
) -> session.Welcome:
    """Greets, stores the generation and confirms it; then the link carries work.

    `confirming` is called before confirm is sent: from there on the Platform may have taken it,
    whatever is answered. Raises what `Link.ask` raises, `strict_json.Malformed`, and `Temporary`
    where the generation cannot be stored: then nothing is confirmed.
    """
    welcome = await greet(link, who=who, purpose=session.Purpose.SESSION)
    crash_points.reach(WELCOMED)
    if welcome.generation < who.generation:
        raise failures.Fault(
            f"The Platform gave generation {welcome.generation}, and this machine has "
            f"{who.generation} already."
        )
    await store_generation(where, generation=welcome.generation, clock=clock)
    crash_points.reach(STORED)
    confirming()
    await link.ask(
        session.Ask.CONFIRM,
        session.Confirm(generation=welcome.generation).to_bytes(),
        timeout_s=CONFIRM_SECONDS,
        max_bytes=session.MAX_BYTES,
    )
    crash_points.reach(CONFIRMED)
    return welcome


async def store_generation(where: paths.Paths, *, generation: int, clock: clock_kit.Clock) -> None:
    """Writes it into `agent.json`; never a lower one than stands there."""
    async with lock.waited_for(where, clock=clock):
        _store(where, generation=generation)


def _store(where: paths.Paths, *, generation: int) -> None:
    try:
        present = agent_file.read(where.agent)
        if present is None:
            raise failures.NeedsOperator(
                f"{where.agent} is gone.", hint="Restore it, or join again: enlist worker join -"
            )
        if present.generation < generation:
            agent_file.write(where.agent, dataclasses.replace(present, generation=generation))
    except documents.Damaged as error:
        raise failures.NeedsOperator(
            str(error), hint="Repair it by joining again with a new token: enlist worker join -"
        ) from error
    except OSError as error:
        raise failures.Temporary(
            f"{where.agent} cannot be written: {error.strerror}. The session is not opened."
        ) from error
