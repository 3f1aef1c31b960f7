"""The pure parts of a session: where to, by which keys, at what pace, and what a beat tells."""

import dataclasses
import datetime
import itertools
import pathlib
import random

import pytest

from tests.support import held_sets
from wire_protocol import ids, pins, statements, trust
from worker_agent.door import gateway as gateway_door
from worker_agent.identity import certificates
from worker_agent.session import facts, pace, targets
from worker_agent.settings import agent_file, join_file

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
NODE = ids.NodeId("web-1")
OLD, NEW = pins.Pin("sha256:" + "01" * 32), pins.Pin("sha256:" + "02" * 32)
STATED, OWN = "https://stated.example:8445", "https://own.example:8445"


def join(mode: join_file.Mode) -> join_file.JoinFile:
    return join_file.JoinFile(
        platform_url="https://p.example:8444",
        platform_id=ids.PlatformId("plt_1"),
        node_id=NODE,
        mode=mode,
        given_pins=(),
        pins=(),
        ca_pem=None,
        enrollment_id=ids.EnrollmentId("0123456789abcdef"),
        joined_at=NOW,
    )


def agent(*, url: str | None = OWN, known: tuple[pins.Pin, ...] = (OLD,)) -> agent_file.AgentFile:
    return agent_file.AgentFile(
        node_id=NODE,
        generation=1,
        connectivity=agent_file.Connectivity.DIAL_OUT,
        addresses=(),
        port=8443,
        reported_labels={},
        gateway_url=url,
        gateway_pins=known,
        joined_at=NOW,
    )


def held(*, urls: tuple[str, ...] = (STATED,), known: tuple[pins.Pin, ...] = (NEW,)) -> trust.Held:
    found = held_sets.held(held_sets.Key())
    statement = dataclasses.replace(found.statement, gateway_urls=urls, gateway_pins=known)
    content = statement.to_bytes()
    signed = statements.SignedStatement(content=content, signatures=())
    return trust.Held(signed=signed, statement=statement)


PINS, ROOTS = join_file.Mode.PINS, join_file.Mode.PUBLIC_ROOTS
CASES = {
    "in pin mode the statement's addresses come first and its keys alone count": (
        *(join(PINS), held(), agent()),
        targets.Gateway(urls=(STATED, OWN), pins=frozenset({NEW})),
    ),
    "a statement that names no key leaves those of the join": (
        *(join(PINS), held(known=()), agent()),
        targets.Gateway(urls=(STATED, OWN), pins=frozenset({OLD})),
    ),
    "a statement without a gateway leaves the join's": (
        *(join(PINS), held(urls=(), known=()), agent()),
        targets.Gateway(urls=(OWN,), pins=frozenset({OLD})),
    ),
    "in the other modes a statement counts for nothing here": (
        *(join(ROOTS), held(), agent()),
        targets.Gateway(urls=(OWN,), pins=frozenset({OLD})),
    ),
    "a gateway that nobody has named is none": (
        *(join(PINS), held(urls=(), known=()), agent(url=None, known=())),
        None,
    ),
    "an address without a key is none": (*(join(ROOTS), held(), agent(known=())), None),
    "an address that both name is tried once": (
        *(join(PINS), held(urls=(OWN,)), agent()),
        targets.Gateway(urls=(OWN,), pins=frozenset({NEW})),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_where_the_gateway_is(case: str) -> None:
    joined, trusted, stored, expected = CASES[case]
    assert targets.gateway_of(joined, held=trusted, agent=stored) == expected


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Gate.Example.com", "01" * 16 + ".gate.example.com"),
        ("192.0.2.1", "01" * 16 + ".node.enlist.internal"),
        ("2001:db8::1", "01" * 16 + ".node.enlist.internal"),
        ("a_b.example", "01" * 16 + ".node.enlist.internal"),
        ("a" * 230, "01" * 16 + ".node.enlist.internal"),
    ],
)
def test_the_name_asked_for_begins_with_the_machines_own_pin(host: str, name: str) -> None:
    assert gateway_door.server_name(OLD, host=host) == name


def test_each_span_has_one_try_and_the_spans_end_at_a_minute() -> None:
    paced = pace.Pace(chance=random.Random(3))
    tried, now = [], 100.0
    for _ in range(30):
        now += paced.after_passing(now)
        tried.append(now - 100.0)
    ends = list(itertools.accumulate([*pace.SPANS, *[60.0] * 21]))
    starts = [0.0, *ends]
    for number, moment in enumerate(tried):
        assert starts[number] <= moment <= ends[number]


def test_a_try_that_took_longer_than_its_span_is_followed_by_a_whole_one() -> None:
    paced = pace.Pace(chance=random.Random(3))
    paced.after_passing(0.0)
    assert 0 <= paced.after_passing(500.0) <= 8.0


def test_after_a_steady_session_the_next_loss_begins_anew() -> None:
    paced = pace.Pace(chance=random.Random(3))
    for _ in range(20):
        paced.after_passing(0.0)
    paced.after_steady()
    assert paced.failures == 0
    assert paced.after_passing(1000.0) <= pace.SPANS[0]


def test_what_the_other_side_asks_for_is_bounded() -> None:
    paced = pace.Pace(chance=random.Random(3))
    assert paced.after_passing(0.0, asked=1e9) == pace.MOST_ASKED


def test_a_standing_obstacle_is_tried_at_most_once_a_minute_from_the_third_on() -> None:
    paced = pace.Pace(chance=random.Random(3))
    waits = [paced.after_standing() for _ in range(50)]
    assert min(waits[2:]) >= 60
    assert max(waits) <= 120


def test_a_certificate_is_due_after_two_thirds_of_its_life_and_not_long_after() -> None:
    made = certificates.self_signed(
        certificates.new_key(), node_id=NODE, addresses=(), now=NOW, days=90
    )
    day = datetime.timedelta(days=1)
    assert not certificates.is_due(made, now=NOW)
    assert not certificates.is_due(made, now=NOW + 59 * day)
    assert certificates.is_due(made, now=NOW + 64 * day)
    assert certificates.is_due(made, now=NOW + 400 * day)
    assert certificates.is_due(made, now=NOW - 2 * day), "made under a clock that was wrong"


def test_machines_that_joined_together_do_not_renew_in_one_hour() -> None:
    made = [
        certificates.self_signed(
            certificates.new_key(), node_id=NODE, addresses=(), now=NOW, days=90
        )
        for _ in range(40)
    ]
    start = NOW + datetime.timedelta(days=60)
    hours = [
        next(
            hour
            for hour in range(24 * 5)
            if certificates.is_due(one, now=start + datetime.timedelta(hours=hour))
        )
        for one in made
    ]
    assert len(set(hours)) > 15


def test_the_kernels_figures_are_read_and_odd_ones_left_out(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "meminfo"
    source.write_text("MemTotal:  16 kB\nMemAvailable: 8 kB\nHugePages_Total: 0\nOdd: x kB\n\n")
    assert facts.memory(source) == {"MemTotal": 16_384, "MemAvailable": 8192}
    assert facts.memory(tmp_path / "nothing") == {}


def test_a_folder_that_is_gone_has_no_disk(tmp_path: pathlib.Path) -> None:
    assert facts.disk(tmp_path / "nothing") == (0, 0)
    size, free = facts.disk(tmp_path)
    assert size >= free > 0
