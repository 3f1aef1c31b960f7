"""What a worker's doctor makes of dates, offsets and failures; pure, with the time handed in."""

import datetime
import pathlib

import pytest

from runtime_kit import dial, failures, pinned_handshake, server_trust
from tests.support import held_sets
from wire_protocol import findings, ids
from worker_agent.doctor import ground, legs, several
from worker_agent.doctor import seen as seen_kit
from worker_agent.identity import certificates, own, states
from worker_agent.settings import paths

DAY = datetime.timedelta(days=1)
START = held_sets.START


def _seen(
    folder: pathlib.Path, *, days: int = 90, key: held_sets.Key | None = None
) -> seen_kit.Seen:
    private = certificates.new_key()
    certificate = certificates.self_signed(
        private, node_id=ids.NodeId("w-1"), addresses=(), now=START, days=days
    )
    return seen_kit.Seen(
        where=paths.Paths(folder=folder),
        uid=0,
        gid=0,
        agent=None,
        join=None,
        held=held_sets.held(key or held_sets.Key()),
        identity=own.Found(state=states.State.CERTIFIED, key=private, certificate=certificate),
        faults=(),
    )


IDENTITY = {
    "fresh": (1, "ok", None),
    "two thirds gone, as the Agent renews": (65, "ok", None),
    "nearly at its end, so that nobody renewed it": (80, "warning", "enlist worker renew"),
    "ended, and the key counts on": (100, "warning", "enlist worker renew"),
    "not begun, so that the clock is wrong": (-1, "warning", "timedatectl"),
}


@pytest.mark.parametrize("case", IDENTITY)
def test_a_certificates_dates_are_judged(case: str, tmp_path: pathlib.Path) -> None:
    day, status, command = IDENTITY[case]
    (found,) = ground.identity(_seen(tmp_path), now=START + day * DAY)
    assert (found.status, found.command) == (status, command)


TRUST = {
    "valid for long": (10, "ok"),
    "the last key ends soon": (345, "warning"),
    "no key is valid any more": (400, "failed"),
    "no key is valid yet": (-10, "failed"),
}


@pytest.mark.parametrize("case", TRUST)
def test_trust_keys_are_judged_by_this_machines_clock(case: str, tmp_path: pathlib.Path) -> None:
    day, status = TRUST[case]
    (found,) = ground.trust(_seen(tmp_path), now=START + day * DAY)
    assert found.status == status
    if status != "ok":
        assert found.command == "enlist worker refresh-trust"


OFFSETS = {
    "none was told": (None, "skipped"),
    "as close as can be measured": (1.0, "ok"),
    "a little ahead": (60.0, "warning"),
    "a day ahead": (86_400.0, "warning"),
    "a little behind": (-60.0, "warning"),
    "so far behind that the Platform's certificates have not begun": (-4000.0, "failed"),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_the_clocks_offset_is_judged(case: str) -> None:
    seconds, status = OFFSETS[case]
    ahead = None if seconds is None else datetime.timedelta(seconds=seconds)
    assert legs.clock_offset(ahead).status == status


FAULTS: dict[str, tuple[failures.NetworkFailure, str]] = {
    "nobody answers": (dial.DialFailed("Nobody there"), "transient"),
    "no https origin": (dial.InvalidUrl("Not a URL"), "permanent"),
    "another key": (
        pinned_handshake.PinMismatch(expected=frozenset({"a"}), got="b", server="p"),
        "needs-operator",
    ),
    "a proxy asks for a password": (
        dial.ProxyAsksForCredentials("The proxy: 407"),
        "needs-operator",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_connection_that_failed_keeps_its_class(case: str) -> None:
    error, kind = FAULTS[case]
    found = legs.of_network("gateway", error)
    assert (found.status, found.kind) == (findings.Status.FAILED, kind)
    assert found.kind != "needs-operator" or found.command


ANSWERS = {
    "one of two is silent": ("ok silent", "ok warning", 0),
    "the first is silent, the other warns": ("silent newer", "warning warning", 0),
    "none answers": ("silent silent", "failed failed", 75),
    "another key is told as it is": ("ok other-key", "ok failed", 6),
    "what broke here lets nobody else off": ("broken silent", "failed failed", 1),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_a_silent_address_among_others_that_answer_is_a_warning(case: str) -> None:
    answers, expected, code = ANSWERS[case]
    ways = [
        legs.Leg(name=name, url=f"https://{name}:8445", trust=server_trust.ServerTrust())
        for name in ("gateway", "gateway-2")
    ]
    said = dict(zip(("gateway", "gateway-2"), answers.split(), strict=True))
    asked: list[str] = []

    async def ask(leg: legs.Leg) -> tuple[findings.Finding, ...]:
        asked.append(leg.name)
        match said[leg.name]:
            case "ok":
                return (findings.ok(leg.name, "It answers."),)
            case "newer":
                return (findings.warning(leg.name, "A newer trust set."),)
            case "silent":
                return (legs.of_network(leg.name, dial.DialFailed("Nobody there")),)
            case "broken":
                return (findings.fault(leg.name, sentence="Broke.", report_id="r-1"),)
        return (findings.needs_operator(leg.name, "Another key.", command="enlist x"),)

    both = several.Several(ways, ask=ask)
    found = [one for leg in ways for one in await both.of(leg)]
    names = await both.judged((findings.transient("dns.gateway-2", "Nothing answers."),))
    assert [one.status.value for one in found] == expected.split()
    assert findings.exit_code(found) == code
    answers_somewhere = {"ok", "newer"} & set(said.values())
    assert names[0].status.value == ("warning" if answers_somewhere else "failed")
    assert asked == ["gateway", "gateway-2"]
