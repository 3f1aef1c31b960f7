"""To a stranger at the real listener every refusal is the same: bytes, headers and time.

The reason stands in the audit alone (interface.md, `POST /enroll`). What a state of long standing
would take real minutes to reach (an expired token, a node that has been ready) is written into
the store from outside.
"""

import contextlib
import dataclasses
import json
import random
import sqlite3
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence

import httpx
import pytest

from tests.support import domain, operators, racers, real_platform
from wire_protocol import enrollment_token

pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("refusals-look-alike")]

OTHER_NET = "198.51.100.0/24"
UNLIMITED = "1000000"
ROUNDS = 300
TRIES = 6
FRACTION = 0.10
SECONDS = 0.0005


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A Platform on which refusals are provoked."""

    platform: real_platform.RealPlatform
    client: httpx.Client

    def issue(self, node_id: str, **more: object) -> str:
        """An enrollment token."""
        return operators.issue(self.client, node_id, **more)

    async def enroll(self, node_id: str, token: str, one: racers.Racer) -> None:
        """The machine becomes that node."""
        answer = await racers.ask_once(self.platform.enrollment_url, one.body(node_id, token))
        assert answer.status == 201, answer.body

    def write(self, sql: str, *values: object) -> None:
        """Changes the store from outside, as time would have."""
        path = self.platform.data_dir / "enlist.db"
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as database, database:
            assert database.execute(sql, values).rowcount == 1


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("alike") / "platform"
    environment = {
        "ENLIST_ENROLLMENT__ATTEMPTS_PER_MINUTE": UNLIMITED,
        "ENLIST_PROBE__INTERVAL_SECONDS": "3600",
    }
    with (
        real_platform.running(folder, environment=environment) as platform,
        operators.local(platform) as client,
    ):
        yield Stage(platform=platform, client=client)


def _machine(number: int) -> racers.Racer:
    return racers.racers(24)[number]


async def _unknown_token(_: Stage) -> bytes:
    return _machine(0).body("alike-1", enrollment_token.new().text())


async def _wrong_secret(stage: Stage) -> bytes:
    real = enrollment_token.parse(stage.issue("alike-2"))
    guess = enrollment_token.EnrollmentToken(
        enrollment_id=real.enrollment_id, secret_hex=enrollment_token.new().secret_hex
    )
    return _machine(1).body("alike-2", guess.text())


async def _expired(stage: Stage) -> bytes:
    token = stage.issue("alike-3", ttl_minutes=1)
    stage.write(
        "UPDATE enrollments SET expires_at = created_at WHERE enrollment_id = ?",
        enrollment_token.parse(token).enrollment_id,
    )
    return _machine(2).body("alike-3", token)


async def _withdrawn(stage: Stage) -> bytes:
    token = stage.issue("alike-4")
    enrollment_id = enrollment_token.parse(token).enrollment_id
    assert stage.client.delete(f"/enrollments/{enrollment_id}").is_success
    return _machine(3).body("alike-4", token)


async def _replaced(stage: Stage) -> bytes:
    token = stage.issue("alike-5")
    stage.issue("alike-5", replace=True)
    return _machine(4).body("alike-5", token)


async def _spent_with_another_key(stage: Stage) -> bytes:
    token = stage.issue("alike-6")
    await stage.enroll("alike-6", token, _machine(5))
    return _machine(6).body("alike-6", token)


async def _removed_node(stage: Stage) -> bytes:
    """B10, B12: neither the spent token nor one issued before the removal opens anything."""
    token = stage.issue("alike-7")
    await stage.enroll("alike-7", token, _machine(7))
    assert stage.client.delete("/nodes/alike-7", params={"force": "true"}).is_success
    return _machine(7).body("alike-7", token)


async def _unspent_token_of_a_removed_node(stage: Stage) -> bytes:
    await stage.enroll("alike-8", stage.issue("alike-8"), _machine(8))
    again = stage.issue("alike-8", replace=True)
    assert stage.client.delete("/nodes/alike-8", params={"force": "true"}).is_success
    return _machine(9).body("alike-8", again)


async def _wrong_node_id(stage: Stage) -> bytes:
    return _machine(10).body("alike-other", stage.issue("alike-9"))


async def _wrong_source_address(stage: Stage) -> bytes:
    return _machine(11).body("alike-10", stage.issue("alike-10", **{"from": [OTHER_NET]}))


async def _key_of_another_ready_node(stage: Stage) -> bytes:
    await stage.enroll("alike-11", stage.issue("alike-11"), _machine(12))
    stage.write(
        "UPDATE nodes SET state = 'ready', first_ready_at = enrolled_at WHERE node_id = ?",
        "alike-11",
    )
    return _machine(12).body("alike-12", stage.issue("alike-12"))


async def _key_that_has_been_replaced(stage: Stage) -> bytes:
    token = stage.issue("alike-13")
    await stage.enroll("alike-13", token, _machine(13))
    await stage.enroll("alike-13", stage.issue("alike-13", replace=True), _machine(14))
    return _machine(13).body("alike-13", token)


async def _certificate_signed_by_another_key(stage: Stage) -> bytes:
    forged = domain.certificate_of(domain.new_key(), signed_by=domain.new_key())
    one = dataclasses.replace(_machine(15), certificate_pem=forged)
    return one.body("alike-14", stage.issue("alike-14"))


async def _phase_without_an_operation(stage: Stage) -> bytes:
    document = json.loads(_machine(17).body("alike-15", stage.issue("alike-15")))
    del document["certificate_pem"]
    return json.dumps({**document, "phase": "joining", "detail": "x"}).encode()


REASONS = {
    "an unknown token": _unknown_token,
    "a wrong secret": _wrong_secret,
    "an expired token": _expired,
    "a withdrawn token": _withdrawn,
    "a replaced token": _replaced,
    "a token spent with another key": _spent_with_another_key,
    "the spent token of a removed node": _removed_node,
    "an unspent token of a removed node": _unspent_token_of_a_removed_node,
    "a token of another node id": _wrong_node_id,
    "a wrong source address": _wrong_source_address,
    "the key of another ready node": _key_of_another_ready_node,
    "a key that has been replaced": _key_that_has_been_replaced,
    "a certificate signed by another key": _certificate_signed_by_another_key,
    "a phase without an operation": _phase_without_an_operation,
}


@pytest.fixture(scope="module")
def provoked() -> dict[str, bytes]:
    """A request for each reason, once made; it is refused again and again."""
    return {}


async def _requests(stage: Stage, provoked: dict[str, bytes]) -> Mapping[str, bytes]:
    for reason, provoke in REASONS.items():
        if reason not in provoked:
            provoked[reason] = await provoke(stage)
    return provoked


def _shown(answer: racers.Answer) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    """The answer as a stranger sees it; of the date only that it is there."""
    headers = tuple((name, "…" if name == "date" else value) for name, value in answer.headers)
    return answer.status, headers, answer.body


async def test_every_refusal_is_the_same_to_the_byte(
    stage: Stage, provoked: dict[str, bytes]
) -> None:
    bodies = await _requests(stage, provoked)
    shown = {
        reason: _shown(await racers.ask_once(stage.platform.enrollment_url, body))
        for reason, body in bodies.items()
    }
    (one,) = set(shown.values())
    status, headers, body = one
    assert status == 403
    assert dict(headers)["content-type"] == "application/problem+json"
    document = json.loads(body)
    assert document["title"] == "Enrollment refused."
    assert document["code"] == "enrollment-refused"


async def test_the_audit_alone_tells_the_reasons_apart(
    stage: Stage, provoked: dict[str, bytes]
) -> None:
    bodies = await _requests(stage, provoked)
    async with racers.lines([stage.platform.enrollment_url], number=1) as (line,):
        for body in bodies.values():
            assert (await line.ask(body)).status == 403
    told = {entry["reason"] for entry in operators.attempts(stage.client)}
    assert told >= {
        "unknown-token",
        "wrong-secret",
        "expired",
        "revoked",
        "replaced",
        "already-used",
        "node-removed",
        "wrong-node",
        "source-address",
        "key-in-use",
        "key-changed",
        "bad-certificate-signature",
        "no-operation",
    }


async def test_a_refusal_spends_nothing(stage: Stage) -> None:
    """The token that was shown for another node, from another key, opens its own afterwards."""
    token = stage.issue("alike-kept")
    one = _machine(20)
    forged = domain.certificate_of(domain.new_key(), signed_by=domain.new_key())
    refused = (
        one.body("alike-else", token),
        dataclasses.replace(one, certificate_pem=forged).body("alike-kept", token),
    )
    for body in refused:
        assert (await racers.ask_once(stage.platform.enrollment_url, body)).status == 403
    await stage.enroll("alike-kept", token, one)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_the_medians_of_refusals_do_not_tell_the_reason(
    stage: Stage, provoked: dict[str, bytes]
) -> None:
    bodies = dict(await _requests(stage, provoked))
    phase = json.loads(bodies["a phase without an operation"])
    unknown = {**phase, "token": enrollment_token.new().text()}
    bodies["a phase with an unknown token"] = json.dumps(unknown).encode()
    await _measure(stage, bodies)


async def _measure(stage: Stage, bodies: Mapping[str, bytes]) -> None:
    """Half a millisecond needs a quiet machine, so these are of the long tier.

    A try counts only if one reason, measured as often as there are reasons, is not apart from
    itself; where no try counts, the machine is too busy to say anything.
    """
    one = next(iter(bodies.values()))
    same = {f"{number} of one": one for number in range(len(bodies))}
    apart: list[dict[str, float]] = []
    async with racers.lines([stage.platform.enrollment_url], number=1) as (line,):
        for _ in range(TRIES):
            medians = await _medians(line, {**bodies, **same})
            if not _are_alike([medians[name] for name in same]):
                continue
            if _are_alike([medians[name] for name in bodies]):
                return
            apart.append({name: round(1000 * medians[name], 3) for name in bodies})
    if not apart:
        pytest.skip("this machine is too busy to measure half a millisecond")
    raise AssertionError(f"The medians in ms lie apart in every try: {apart}")


def _are_alike(seconds: Sequence[float]) -> bool:
    return max(seconds) - min(seconds) <= max(FRACTION * min(seconds), SECONDS)


async def _medians(line: racers.Line, bodies: Mapping[str, bytes]) -> Mapping[str, float]:
    """Each reason in turn, in a new order each round, so that all are slowed alike."""
    chance = random.Random(1)
    taken: dict[str, list[float]] = {reason: [] for reason in bodies}
    order = list(bodies.items())
    for _ in range(ROUNDS):
        chance.shuffle(order)
        for reason, body in order:
            began = time.perf_counter()
            answer = await line.ask(body)
            taken[reason].append(time.perf_counter() - began)
            assert answer.status == 403
    return {reason: statistics.median(times) for reason, times in taken.items()}
