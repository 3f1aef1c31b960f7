"""Two real Platforms on one PostgreSQL, and the race for one token through real listeners.

Each Platform has a data directory of its own and a copy of the same master.key, as
interface.md says under "Files". The race also runs against one Platform on SQLite.
"""

import asyncio
import collections
import contextlib
import itertools
import json
import pathlib
import shutil
import signal
import ssl
import urllib.parse
from collections.abc import Iterator, Sequence

import httpx
import pytest
from cryptography import x509

from platform_server.nodes import leading
from platform_server.trust import authority
from tests.support import machine, operators, postgres, racers, real_platform
from wire_protocol import enrollment_token, pins, product

pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("two-engines")]

RACERS = 50
QUICK = {"ENLIST_PROBE__INTERVAL_SECONDS": "0.5"}
TAKE_OVER_SECONDS = leading.TTL_SECONDS + leading.RENEW_AFTER_SECONDS + 4
"""The lease runs out, the other looks every few seconds, and then it asks the node."""
FOLLOW_SECONDS = authority.FOLLOW_SECONDS + 13
"""Less than the minute in which an engine looks by itself; a loaded machine needs some of it."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: postgres.Server
) -> Iterator[Sequence[real_platform.RealPlatform]]:
    folder = tmp_path_factory.mktemp("two-engines")
    url = postgres_server.new_database()
    with contextlib.ExitStack() as stack:
        stack.callback(postgres_server.drop_database, url)
        first = stack.enter_context(
            real_platform.running(folder / "one", database_url=url, environment=QUICK)
        )
        (folder / "two").mkdir(mode=0o700)
        shutil.copy2(folder / "one" / "master.key", folder / "two" / "master.key")
        second = stack.enter_context(
            real_platform.running(folder / "two", database_url=url, environment=QUICK)
        )
        yield first, second


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    with real_platform.running(tmp_path_factory.mktemp("alone") / "platform") as platform:
        yield platform


def _name(word: str) -> str:
    return f"{word}-{next(_numbers)}"


async def _race(
    platforms: Sequence[real_platform.RealPlatform], *, client: httpx.Client, rounds: int
) -> None:
    """Each round: one token, one request of every racer at once, split over the listeners."""
    machines = racers.racers(RACERS)
    word = _name("race")
    names = [f"{word}-{number}" for number in range(rounds)]
    before = _used(client)
    urls = [platform.enrollment_url for platform in platforms]
    winners = {}
    async with racers.lines(urls, number=RACERS) as lines:
        for node_id in names:
            token = operators.issue(client, node_id)
            answers = await racers.race(
                lines, bodies=[one.body(node_id, token) for one in machines]
            )
            statuses = collections.Counter(answer.status for answer in answers)
            assert statuses == {201: 1, 403: RACERS - 1}, node_id
            assert len({answer.body for answer in answers if answer.status == 403}) == 1
            (winner,) = (
                one.pin
                for one, answer in zip(machines, answers, strict=True)
                if answer.status == 201
            )
            winners[node_id] = winner
    rows = [(node["node_id"], node["pin"]) for node in operators.nodes(client)]
    assert sorted(row for row in rows if row[0] in winners) == sorted(winners.items())
    enrolled = collections.Counter(
        entry["target"] for entry in operators.actions(client, action="node.enrolled")
    )
    assert {name: enrolled[name] for name in names} == dict.fromkeys(names, 1)
    assert _used(client) - before == rounds * (RACERS - 1)


def _used(client: httpx.Client) -> int:
    """How often the audit says that a token had been used already."""
    return sum(
        entry["count"] for entry in operators.attempts(client) if entry["reason"] == "already-used"
    )


async def test_b2_of_fifty_keys_on_one_platform_exactly_one_wins_in_each_of_forty_rounds(
    alone: real_platform.RealPlatform,
) -> None:
    with operators.local(alone) as client:
        await _race([alone], client=client, rounds=40)
    assert operators.is_intact(alone)


async def test_b2_of_fifty_keys_on_two_platforms_exactly_one_wins_in_each_of_forty_rounds(
    pair: Sequence[real_platform.RealPlatform],
) -> None:
    with operators.local(pair[0]) as client:
        await _race(pair, client=client, rounds=40)
    assert operators.is_intact(pair[1])


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_b2_of_fifty_keys_on_one_platform_exactly_one_wins_in_each_of_two_hundred_rounds(
    alone: real_platform.RealPlatform,
) -> None:
    with operators.local(alone) as client:
        await _race([alone], client=client, rounds=200)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_b2_of_fifty_keys_on_two_platforms_exactly_one_wins_in_each_of_two_hundred_rounds(
    pair: Sequence[real_platform.RealPlatform],
) -> None:
    with operators.local(pair[0]) as client:
        await _race(pair, client=client, rounds=200)


async def test_one_key_that_asks_both_platforms_fifty_times_at_once_gets_one_node(
    pair: Sequence[real_platform.RealPlatform],
) -> None:
    node_id, one = _name("same"), racers.racers(RACERS)[0]
    with operators.local(pair[0]) as client:
        token = operators.issue(client, node_id)
        urls = [platform.enrollment_url for platform in pair]
        async with racers.lines(urls, number=RACERS) as lines:
            answers = await racers.race(lines, bodies=[one.body(node_id, token)] * RACERS)
        statuses = collections.Counter(answer.status for answer in answers)
        assert statuses == {201: 1, 200: RACERS - 1}
        assert {answer.document["generation"] for answer in answers} == {1}
        assert [node["node_id"] for node in operators.nodes(client)].count(node_id) == 1


def test_both_say_the_same_pins_trust_keys_and_platform_id(
    pair: Sequence[real_platform.RealPlatform],
) -> None:
    shown = []
    for platform in pair:
        with operators.local(platform) as client:
            shown.append(client.get("/platform").json())
    assert shown[0]["api_pins"] == []  # plain http on loopback has none
    for name in ("platform_id", "pins", "trust_keys"):
        assert shown[0][name] == shown[1][name]
        assert shown[0][name]
    assert pair[0].said["pins"] == pair[1].said["pins"]


def test_a_token_issued_at_one_is_redeemed_at_the_other(
    pair: Sequence[real_platform.RealPlatform], tmp_path: pathlib.Path
) -> None:
    node_id = _name("across")
    issued = json.loads(pair[0].enlist("nodes", "enroll-token", node_id, "-o", "json"))
    real_platform.run_enlist(
        *("--data-dir", str(tmp_path / "machine"), "worker", "join"),
        *("--platform-url", pair[1].enrollment_url, "--node-id", node_id),
        *("--enrollment-token-file", "-", "--platform-fingerprint", pair[1].said["pins"][0]),
        stdin=issued["token"],
    )
    assert machine.node(pair[0], node_id)["state"] == "enrolled"
    assert machine.node(pair[1], node_id) == machine.node(pair[0], node_id)


async def test_failures_at_one_count_at_the_other(
    pair: Sequence[real_platform.RealPlatform],
) -> None:
    """Ten failures a minute are looked into for one token id, wherever they come in."""
    node_id, one = _name("guessed"), racers.racers(RACERS)[0]
    with operators.local(pair[0]) as client:
        real = enrollment_token.parse(operators.issue(client, node_id))
    guess = enrollment_token.EnrollmentToken(
        enrollment_id=real.enrollment_id, secret_hex=enrollment_token.new().secret_hex
    ).text()
    urls = [platform.enrollment_url for platform in pair]
    async with racers.lines(urls, number=2) as lines:
        statuses = [
            (await lines[number % 2].ask(one.body(node_id, guess))).status for number in range(25)
        ]
        assert 403 in statuses
        assert set(statuses) == {403, 429}
        assert statuses.count(403) <= 2 * 10  # the minute may turn once meanwhile
        refused = await asyncio.gather(*(line.ask(one.body(node_id, guess)) for line in lines))
        assert {answer.status for answer in refused} == {429}
        assert all(int(answer.header("retry-after") or "0") > 0 for answer in refused)
        # noise beside it never locks the machine with the good token out
        answer = await lines[1].ask(one.body(node_id, real.text()))
    assert answer.status == 201


async def test_the_trust_question_is_answered_the_same_by_both(
    pair: Sequence[real_platform.RealPlatform],
) -> None:
    answers = [
        (await racers.ask_once(platform.enrollment_url, b"{}", path=product.TRUST_PATH)).document
        for platform in pair
    ]
    assert answers[0]["trust_keys"] == answers[1]["trust_keys"]
    assert answers[0]["pins"] == answers[1]["pins"]


def test_when_the_probing_engine_is_killed_the_other_takes_over_within_its_bound(
    pair: Sequence[real_platform.RealPlatform], tmp_path: pathlib.Path
) -> None:
    node_id = _name("watched")
    worker = machine.in_folder(tmp_path)
    worker.join(machine.issue(pair[0], node_id))
    with worker.agent():
        machine.wait_for_state(pair[0], node_id, "ready")
        leader, other = sorted(pair, key=_led_at, reverse=True)
        led_before = _led_at(other)
        with _engine_gone(leader):
            operators.wait_until(
                lambda: _led_at(other) > led_before,
                what="the other engine took the probe over",
                seconds=TAKE_OVER_SECONDS,
            )
            # it has heard nobody yet, so it asks before it calls the node ready
            shown = machine.wait_for_state(other, node_id, "ready", seconds=TAKE_OVER_SECONDS)
            assert shown["reason"] is None
        operators.wait_until(
            lambda: _is_served(leader), what="the killed engine was started again", seconds=20
        )


def test_a_tls_key_that_one_changes_at_once_is_served_by_both_within_seconds(
    pair: Sequence[real_platform.RealPlatform],
) -> None:
    pair[0].enlist("platform", "rotate-tls-key", "--yes")
    old, following = _pins_of(pair[0])
    operators.wait_until(
        lambda: _pins_of(pair[1]) == [old, following],
        what="the other shows both pins",
        seconds=FOLLOW_SECONDS,
    )
    pair[0].enlist("platform", "rotate-tls-key", "--yes", "--now")
    assert _served_pin(pair[0]) == following
    operators.wait_until(
        lambda: _served_pin(pair[1]) == following,
        what="the other serves the new key",
        seconds=FOLLOW_SECONDS,
    )
    assert _pins_of(pair[0]) == _pins_of(pair[1]) == [following]


def _pins_of(platform: real_platform.RealPlatform) -> list[str]:
    with operators.local(platform) as client:
        return list(client.get("/platform").json()["pins"])


def _served_pin(platform: real_platform.RealPlatform) -> str:
    at = urllib.parse.urlsplit(platform.enrollment_url)
    pem = ssl.get_server_certificate((str(at.hostname), at.port or 443), timeout=10)
    return pins.pin_of_certificate(x509.load_pem_x509_certificate(pem.encode()))


@contextlib.contextmanager
def _engine_gone(platform: real_platform.RealPlatform) -> Iterator[None]:
    """The engine is killed, and its host is held so that it cannot start another."""
    platform.process.send_signal(signal.SIGSTOP)
    try:
        platform.child("platform_server engine").kill()
        yield
    finally:
        platform.process.send_signal(signal.SIGCONT)


def _led_at(platform: real_platform.RealPlatform) -> str:
    """When its engine last took up the probe, as its log writes times; empty if never."""
    lines = platform.log.read_text().splitlines()
    said = [json.loads(line) for line in lines if "This engine leads" in line]
    return max((line["timestamp"] for line in said if line["work"] == "probe"), default="")


def _is_served(platform: real_platform.RealPlatform) -> bool:
    with operators.local(platform) as client:
        try:
            return client.get("/platform", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False
