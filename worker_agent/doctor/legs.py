"""The ways from this machine to its Platform, and who answers there.

Every question is one that the Agent asks as well: a handshake, and the empty trust question, whose
answer is believed by its signature alone. Nothing about this machine is sent, nothing is kept.
"""

import dataclasses
import datetime
import os
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from runtime_kit import dial, failures, pinned_handshake, server_trust
from wire_protocol import findings, problems, product, statements, strict_json
from wire_protocol import trust as verdicts
from worker_agent.doctor import seen as seen_kit
from worker_agent.door import platform
from worker_agent.session import targets
from worker_agent.trust import refresh

ASK_SECONDS = 10.0
MOST_ADDRESSES = 8
_WARN_OFFSET = datetime.timedelta(seconds=5)
_MOST_OFFSET = datetime.timedelta(hours=1)  # what the Platform's certificates are backdated
_MEASURED_TO_SECONDS = 1.0  # an HTTP date counts whole seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Time and environment of one checkup."""

    clock: clock_kit.Clock
    environment: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: dict(os.environ), repr=False
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One address of the Platform and by which pins it is known."""

    name: str
    url: str
    trust: server_trust.ServerTrust

    @property
    def origin(self) -> dial.Origin:
        """Host and port; raises `dial.InvalidUrl`."""
        return dial.parse_https_origin(self.url)


def enrollment_legs(seen: seen_kit.Seen) -> list[Leg]:
    """Where the trust question is asked, in the Agent's order."""
    if seen.join is None or seen.held is None:
        return []
    trust = server_trust.ServerTrust(
        pins=refresh.known_pins(seen.join, seen.held), ca_pem=seen.join.ca_pem
    )
    urls = refresh.addresses(seen.join, seen.held)
    return [
        Leg(name=_numbered("enrollment", i), url=url, trust=trust) for i, url in enumerate(urls)
    ]


def gateway_legs(seen: seen_kit.Seen) -> list[Leg]:
    """Where sessions are held, as the Agent knows it."""
    if seen.join is None or seen.held is None or seen.agent is None:
        return []
    found = targets.gateway_of(seen.join, held=seen.held, agent=seen.agent)
    if found is None:
        return []
    trust = server_trust.ServerTrust(pins=frozenset(found.pins))
    urls = found.urls[:MOST_ADDRESSES]
    return [Leg(name=_numbered("gateway", i), url=url, trust=trust) for i, url in enumerate(urls)]


def _numbered(name: str, index: int) -> str:
    return name if index == 0 else f"{name}-{index + 1}"


async def trust_question(
    leg: Leg, *, seen: seen_kit.Seen, around: Around
) -> tuple[findings.Finding, ...]:
    """Connection, pin, and the trust question; what is answered is judged and not kept."""
    held = seen.held
    if held is None:
        return (findings.skipped(leg.name, "Not before the join."),)
    started = around.clock.monotonic()
    try:
        answer = await _ask(leg, trust=leg.trust, around=around)
    except pinned_handshake.PinMismatch as error:
        return await _another_key(leg, error, held=held, around=around)
    except failures.NetworkFailure as error:
        return (of_network(leg.name, error),)
    took = round((around.clock.monotonic() - started) * 1000)
    facts = {"url": leg.url, "took_ms": took, "pin": answer.leaf.pin}
    return (
        _judged(leg, answer, held=held, around=around, facts=facts),
        *((clock_offset(answer.clock_ahead),) if leg.name == "enrollment" else ()),
    )


async def _ask(
    leg: Leg, *, trust: server_trust.ServerTrust | None, around: Around
) -> platform.Answer:
    return await platform.ask(
        leg.url,
        question=platform.Question(
            path=product.TRUST_PATH, body=b"{}", max_bytes=statements.MAX_ANSWER_BYTES
        ),
        trust=trust,
        clock=around.clock,
        within_s=ASK_SECONDS,
        environment=around.environment,
    )


async def _another_key(
    leg: Leg, mismatch: pinned_handshake.PinMismatch, *, held: verdicts.Held, around: Around
) -> tuple[findings.Finding, ...]:
    """The pin does not match: does a signed statement lead to the key that is shown?"""
    facts = {"url": leg.url, "expected": sorted(mismatch.expected), "pin": mismatch.got}
    try:
        answer = await _ask(leg, trust=None, around=around)
        believed = verdicts.accept(
            held, statements.parse_answer(answer.body), now=around.clock.now()
        )
    except (failures.NetworkFailure, verdicts.Refused, strict_json.Malformed) as error:
        return (
            findings.needs_operator(
                leg.name,
                f"{mismatch}, and nothing that this machine knows vouches for it: {error}",
                command="enlist nodes platform   (on the Platform; compare the pins)",
                facts=facts,
            ),
        )
    if mismatch.got in believed.statement.enrollment_pins:
        return (
            findings.warning(
                leg.name,
                "The Platform has another TLS key, and a signed statement vouches for it: the "
                "trust set here is to be renewed.",
                command="enlist worker refresh-trust",
                facts=facts,
            ),
        )
    return (
        findings.needs_operator(
            leg.name,
            f"{mismatch}. Somebody is in between: the statement is genuine and names other keys",
            command="enlist nodes platform   (on the Platform; compare the pins)",
            facts=facts,
        ),
    )


def _judged(
    leg: Leg,
    answer: platform.Answer,
    *,
    held: verdicts.Held,
    around: Around,
    facts: dict[str, object],
) -> findings.Finding:
    if answer.status != 200:
        problem = problems.parse(answer.status, answer.body)
        text = f"{leg.url} answered {answer.status}: {problem.detail[:300]}"
        if problem.meaning.kind is problems.Kind.TRANSIENT:
            return findings.transient(leg.name, text, facts=facts)
        return findings.needs_operator(
            leg.name, text, command="enlist doctor   (on the Platform)", facts=facts
        )
    try:
        offered = verdicts.accept(
            held, statements.parse_answer(answer.body), now=around.clock.now()
        )
    except (verdicts.Refused, strict_json.Malformed) as error:
        return findings.needs_operator(
            leg.name,
            f"{leg.url} answers, and its trust set is not believed: {error}",
            command="enlist nodes platform   (on the Platform; compare)",
            facts=facts,
        )
    if offered.statement.number != held.statement.number:
        return findings.warning(
            leg.name,
            f"{leg.url} answers with a newer trust set than the one held here.",
            command="enlist worker refresh-trust",
            facts=facts,
        )
    return findings.ok(
        leg.name, f"{leg.url} is the Platform and answers ({facts['took_ms']} ms).", facts=facts
    )


async def gateway(leg: Leg, *, around: Around) -> tuple[findings.Finding, ...]:
    """Connection and pin of the gateway; a running session is not disturbed."""
    started = around.clock.monotonic()
    try:
        origin = leg.origin
        with await dial.dial(
            origin.host,
            port=origin.port,
            timeout_s=ASK_SECONDS / 2,
            environment=around.environment,
        ) as sock:
            leaf = await pinned_handshake.authenticate_pinned(
                sock,
                pins=leg.trust.pins,
                server=origin.authority,
                host=origin.host,
                timeout_s=ASK_SECONDS / 2,
            )
    except failures.NetworkFailure as error:
        return (of_network(leg.name, error),)
    took = round((around.clock.monotonic() - started) * 1000)
    return (
        findings.ok(
            leg.name,
            f"{leg.url} is the Platform's gateway ({took} ms).",
            facts={"url": leg.url, "took_ms": took, "pin": leaf.pin},
        ),
    )


def clock_offset(ahead: datetime.timedelta | None) -> findings.Finding:
    """This machine's clock against the Platform's."""
    if ahead is None:
        return findings.skipped("clock", "The answer carried no time to compare with.")
    seconds = ahead.total_seconds()
    facts = {"ahead_seconds": round(seconds), "measured_to_seconds": _MEASURED_TO_SECONDS}
    if abs(ahead) <= _WARN_OFFSET:
        return findings.ok("clock", "It agrees with the Platform's.", facts=facts)
    side = "ahead of" if seconds > 0 else "behind"
    text = f"This machine's clock is {abs(round(seconds))} s {side} the Platform's"
    command = "timedatectl set-ntp true"
    # Behind by more, it refuses the Platform's certificates as not valid yet.
    if ahead < -_MOST_OFFSET:
        return findings.needs_operator(
            "clock", f"{text}, and refuses its calls for that.", command=command, facts=facts
        )
    return findings.warning("clock", f"{text}.", command=command, facts=facts)


def of_network(name: str, error: failures.NetworkFailure) -> findings.Finding:
    """The finding for a connection that did not come about."""
    text = f"{str(error).rstrip('.')}."
    if error.kind is failures.Kind.NEEDS_OPERATOR:
        command = (
            "env | grep -i _proxy"
            if "proxy" in str(error).lower()
            else "enlist nodes platform   (on the Platform; compare the pins)"
        )
        return findings.needs_operator(name, text, command=command)
    if error.kind is failures.Kind.PERMANENT:
        return findings.permanent(name, text)
    return findings.transient(name, text, command="enlist doctor   (on the Platform)")
