"""Asks for the trust set once and keeps the better of the two, the held one or the answer.

The question is empty and carries no secret, and the answer is believed by its signature alone. So
where the pin does not match any more (the Platform's TLS key changed, Z-56), it may be asked over
that same unmatched connection; nothing but the signed statement is believed. Failure of any kind
keeps what the machine holds.
"""

import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

from runtime_kit import clock as clock_kit
from runtime_kit import crash_points, pinned_handshake, server_trust
from runtime_kit import failures as network
from wire_protocol import ids, pins, product, statements, strict_json
from wire_protocol import trust as verdicts
from worker_agent.door import platform, refusals
from worker_agent.identity import lock
from worker_agent.settings import (
    agent_file,
    documents,
    failures,
    join_file,
    paths,
    trust_file,
)

ASKED = crash_points.declare("refresh.asked", story="The trust question is about to be sent.")
ANSWERED = crash_points.declare("refresh.answered", story="The trust answer has been received.")
SAVED = crash_points.declare("refresh.saved", story="The new trust set is on the disk.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What a refresh came to."""

    before: verdicts.Held
    after: verdicts.Held
    answer: statements.TrustAnswer  # as it came, with the statements that lead there
    matched: bool  # whether the connection was authenticated, or the signature alone vouches

    @property
    def changed(self) -> bool:
        """Whether a newer statement is held now."""
        return self.after.statement.number != self.before.statement.number

    @property
    def added(self) -> tuple[ids.KeyId, ...]:
        """Key ids that were not held before."""
        return _difference(self.after, self.before)

    @property
    def dropped(self) -> tuple[ids.KeyId, ...]:
        """Key ids that are held no more."""
        return _difference(self.before, self.after)

    def to_document(self) -> dict[str, object]:
        """What changed, as the JSON document on stdout."""
        statement = self.after.statement
        return {
            "changed": self.changed,
            "platform_id": statement.platform_id,
            "epoch": statement.epoch,
            "serial": statement.serial,
            "trust_keys": [key.key_id for key in statement.trust_keys],
            "added": list(self.added),
            "dropped": list(self.dropped),
            "pins": list(statement.enrollment_pins),
            "connection_matched": self.matched,
        }

    def to_text(self) -> str:
        """What changed, for a person."""
        statement = self.after.statement
        number = f"{statement.epoch}.{statement.serial}"
        if not self.changed:
            return f"The trust set is current ({number}, {len(statement.trust_keys)} keys)."
        lines = [f"The trust set is now {number}:"]
        for key in statement.trust_keys:
            mark = "+" if key.key_id in self.added else " "
            lines.append(
                f"  {mark} {key.key_id}  {key.not_before:%Y-%m-%d} to {key.not_after:%Y-%m-%d}"
            )
        lines += [f"  - {key_id}" for key_id in self.dropped]
        return "\n".join(lines)


def known_pins(join: join_file.JoinFile, held: verdicts.Held) -> frozenset[pins.Pin]:
    """The pins that count now: a signed statement's in pin mode, and the join's own always."""
    own = frozenset(join.pins)
    if join.mode.adopts_statements:
        return own | frozenset(held.statement.enrollment_pins)
    return own


def addresses(join: join_file.JoinFile, held: verdicts.Held) -> tuple[str, ...]:
    """Where to ask, in order: a signed statement's address in pin mode, then the join's own."""
    stated = held.statement.enrollment_url if join.mode.adopts_statements else None
    return tuple(dict.fromkeys(url for url in (stated, join.platform_url) if url is not None))


async def refresh(
    where: paths.Paths,
    *,
    clock: clock_kit.Clock,
    warn: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> Refreshed:
    """Asks each address until one gives an answer that can be believed, and keeps that.

    Raises `Temporary` when nobody answered, `NotBelieved` when every address gave an answer that is
    not believed, and `NeedsOperator` when the machine has not joined; what is held then stays as it
    was.
    """

    async def keep(answered: _Answered) -> Refreshed:
        return await _keep(where, answered=answered, clock=clock)

    return await _each(where, then=keep, clock=clock, warn=warn, environment=environment)


async def take(
    where: paths.Paths, body: bytes, *, source: str, clock: clock_kit.Clock
) -> Refreshed:
    """Keeps an answer that came over a session; the same verdict, and raises as `refresh` does.

    The session was proved by the gateway's pins, which is not every join's mode: believed is what
    is signed, and no more.
    """
    answered = _Answered(answer=_parsed(body, source=source), matched=False, url=source)
    return await _keep(where, answered=answered, clock=clock)


async def rehearse(
    where: paths.Paths,
    *,
    clock: clock_kit.Clock,
    warn: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> Refreshed:
    """The same question and the same verdict, for `--check`: nothing is written."""

    async def judge(answered: _Answered) -> Refreshed:
        return _judge(where, answered=answered, clock=clock)

    return await _each(where, then=judge, clock=clock, warn=warn, environment=environment)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """An answer that can be read, from where, and whether the other end was proved."""

    answer: statements.TrustAnswer
    matched: bool
    url: str


async def _each(
    where: paths.Paths,
    *,
    then: Callable[[_Answered], Awaitable[Refreshed]],
    clock: clock_kit.Clock,
    warn: Callable[[str], None],
    environment: Mapping[str, str],
) -> Refreshed:
    """Asks one address after the other; the first failure is the one that is told.

    A silent address gets no more than its share of the time, so that the next is asked as well.
    """
    join, held = load(where)
    urls = addresses(join, held)
    started = clock.monotonic()
    faults: list[failures.Failure] = []
    for asked, url in enumerate(urls):
        left = platform.PATIENCE_SECONDS - (clock.monotonic() - started)
        try:
            answer, matched = await _ask(
                url,
                join=join,
                held=held,
                clock=clock,
                within_s=left / (len(urls) - asked),
                warn=warn,
                environment=environment,
            )
            return await then(_Answered(answer=answer, matched=matched, url=url))
        except failures.Failure as failure:
            faults.append(failure)
    if not faults:
        raise failures.NeedsOperator(
            "No address of the Platform is known.", hint="Join again: enlist worker join -"
        )
    raise _told(faults)


def _told(faults: Sequence[failures.Failure]) -> failures.Failure:
    """The first is told; `NotBelieved` it is only where every address has been found so."""
    first = faults[0]
    if isinstance(first, failures.NotBelieved) and not all(
        isinstance(one, failures.NotBelieved) for one in faults
    ):
        return failures.NeedsOperator(first.message, hint=first.hint)
    return first


def load(where: paths.Paths) -> tuple[join_file.JoinFile, verdicts.Held]:
    """What a refresh stands on; raises `NeedsOperator` on a machine that has not joined."""
    try:
        join, held = join_file.read(where.join), trust_file.read(where.trust)
    except documents.Damaged as error:
        raise failures.NeedsOperator(
            str(error), hint="Repair it by joining again with a new token: enlist worker join -"
        ) from error
    if join is None or held is None:
        raise failures.NeedsOperator(
            f"This machine has not joined a Platform (data directory {where.folder}).",
            hint="Join it first: enlist worker join -",
        )
    return join, held


async def _ask(
    url: str,
    *,
    join: join_file.JoinFile,
    held: verdicts.Held,
    clock: clock_kit.Clock,
    within_s: float,
    warn: Callable[[str], None],
    environment: Mapping[str, str],
) -> tuple[statements.TrustAnswer, bool]:
    trust = server_trust.ServerTrust(pins=known_pins(join, held), ca_pem=join.ca_pem)
    question = platform.Question(
        path=product.TRUST_PATH, body=b"{}", max_bytes=statements.MAX_ANSWER_BYTES
    )
    matched = True
    started = clock.monotonic()
    crash_points.reach(ASKED)
    try:
        try:
            answer = await platform.ask(
                url,
                question=question,
                trust=trust,
                clock=clock,
                within_s=within_s,
                environment=environment,
            )
        except pinned_handshake.PinMismatch as error:
            warn(f"{error}. The trust set is asked for all the same, and believed by signature.")
            matched = False
            answer = await platform.ask(
                url,
                question=question,
                trust=None,
                clock=clock,
                within_s=within_s - (clock.monotonic() - started),
                environment=environment,
            )
    except network.NetworkFailure as error:
        hint = "The trust set is kept. Compare the Platform's pins: enlist nodes platform"
        raise refusals.of_network(error, hint=hint) from error
    crash_points.reach(ANSWERED)
    if not refusals.is_success(answer.status):
        raise refusals.of_answer(answer.status, answer.body, where=url, location=answer.location)
    return _parsed(answer.body, source=url), matched


def _parsed(body: bytes, *, source: str) -> statements.TrustAnswer:
    try:
        return statements.parse_answer(body)
    except strict_json.Malformed as error:
        raise failures.Fault(
            f"{source} answered with something that is no trust set: {error}"
        ) from error


async def _keep(where: paths.Paths, *, answered: _Answered, clock: clock_kit.Clock) -> Refreshed:
    async with lock.waited_for(where, clock=clock):
        done = _judge(where, answered=answered, clock=clock)
        try:
            if done.after is not done.before:
                trust_file.write(where.trust, done.after)
                crash_points.reach(SAVED)
            if answered.matched:
                _keep_gateway(where, done.after)
        except OSError as error:
            raise failures.Temporary(
                f"{where.folder} cannot be written ({error.strerror}); the held trust set is kept."
            ) from error
    return done


def _keep_gateway(where: paths.Paths, held: verdicts.Held) -> None:
    """Where statements are not adopted, an answer over a proved connection tells the gateway."""
    join, _ = load(where)
    statement = held.statement
    agent = agent_file.read(where.agent)
    if join.mode.adopts_statements or agent is None or not statement.gateway_urls:
        return
    told = dataclasses.replace(
        agent, gateway_url=statement.gateway_urls[0], gateway_pins=statement.gateway_pins
    )
    if told != agent:
        agent_file.write(where.agent, told)


def _judge(where: paths.Paths, *, answered: _Answered, clock: clock_kit.Clock) -> Refreshed:
    _, held = load(where)  # again: another refresh may have been quicker
    try:
        accepted = verdicts.accept(held, answered.answer, now=clock.now())
    except verdicts.Refused as error:
        raise failures.NotBelieved(
            f"The answer of {answered.url} is not believed, and the held trust set is kept: "
            f"{error}",
            hint="Compare with the Platform: enlist nodes platform",
        ) from error
    return Refreshed(before=held, after=accepted, answer=answered.answer, matched=answered.matched)


def _difference(one: verdicts.Held, other: verdicts.Held) -> tuple[ids.KeyId, ...]:
    others = {key.key_id for key in other.statement.trust_keys}
    return tuple(key.key_id for key in one.statement.trust_keys if key.key_id not in others)
