"""A stranger cannot tell refusals apart by the clock (interface.md: 10 % or 0.5 ms).

Measured where the answer is made.
"""

import collections
import json
import os
import pathlib
import random
import statistics
import time
from collections.abc import Mapping, Sequence

import pytest

from platform_server.enrollment import limiter
from platform_server.store import contract
from tests.support import domain
from wire_protocol import enrollment_token, product

ROUNDS = 60
TRIES = 5
FRACTION = 0.10
SECONDS = 0.0005
UNLIMITED = limiter.Limits(per_minute=1_000_000, per_address=1_000_000, per_token=1_000_000)


async def _refused(one: domain.Domain) -> dict[str, bytes]:
    """A body for each reason, which is refused for it again and again."""

    def body(node_id: str, token: str, certificate: str) -> bytes:
        return json.dumps(
            {
                "node_id": node_id,
                "token": token,
                "certificate_pem": certificate,
                "version": product.VERSION,
            }
        ).encode()

    def fresh() -> str:
        return domain.new_certificate()

    bodies: dict[str, bytes] = {}
    bodies["unknown-token"] = body("t-0", enrollment_token.new().text(), fresh())
    issued = await one.new_token("t-1")
    wrong = enrollment_token.EnrollmentToken(
        enrollment_id=issued.token.enrollment_id, secret_hex=enrollment_token.new().secret_hex
    )
    bodies["wrong-secret"] = body("t-1", wrong.text(), fresh())
    bodies["wrong-node"] = body("t-2", issued.token.text(), fresh())
    used = await one.new_token("t-3")
    await one.knock("t-3", used)
    bodies["already-used"] = body("t-3", used.token.text(), fresh())
    replaced = await one.new_token("t-4")
    await one.new_token("t-4", replace=True)
    bodies["replaced"] = body("t-4", replaced.token.text(), fresh())
    bound = await one.new_token("t-5", sources=["198.51.100.0/24"])
    bodies["source-address"] = body("t-5", bound.token.text(), fresh())
    forged = await one.new_token("t-6")
    certificate = domain.certificate_of(domain.new_key(), signed_by=domain.new_key())
    bodies["bad-certificate-signature"] = body("t-6", forged.token.text(), certificate)
    kept = fresh()
    gone = await one.new_token("t-7")
    await one.knock("t-7", gone, certificate=kept)
    await one.remove("t-7")
    bodies["node-removed"] = body("t-7", gone.token.text(), kept)
    late = await one.new_token("t-8", ttl_minutes=1)
    one.clock.advance(61)
    bodies["expired"] = body("t-8", late.token.text(), fresh())
    return bodies


async def _measure(
    one: domain.Domain, bodies: Mapping[str, bytes], *, taken: dict[str, list[float]]
) -> None:
    """Each reason in turn, in a new order each round, so that all are slowed alike."""
    chance = random.Random(1)
    order = list(bodies.items())
    for _ in range(ROUNDS):
        chance.shuffle(order)
        for reason, body in order:
            began = time.perf_counter()
            answered = await one.door.answer_enroll(
                body, address=domain.PEER, request_id=domain.REQUEST
            )
            taken[reason].append(time.perf_counter() - began)
            assert answered.status == 403


def _are_alike(seconds: Sequence[float]) -> bool:
    return max(seconds) - min(seconds) <= max(FRACTION * min(seconds), SECONDS)


@pytest.mark.timeout(300)
async def test_the_time_of_a_refusal_does_not_tell_its_reason(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    one = await domain.build(store, folder=tmp_path, limits=UNLIMITED)
    await _compare(one, await _refused(one))


@pytest.mark.timeout(300)
async def test_the_time_of_a_refused_phase_does_not_tell_a_good_token_from_a_bad_one(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    one = await domain.build(store, folder=tmp_path, limits=UNLIMITED)
    issued = (await one.new_token("t-1")).token
    wrong = enrollment_token.EnrollmentToken(
        enrollment_id=issued.enrollment_id, secret_hex=enrollment_token.new().secret_hex
    )
    tokens = {"good": issued, "unknown": enrollment_token.new(), "wrong": wrong}
    await _compare(
        one,
        {
            name: json.dumps({"node_id": "t-1", "token": token.text(), "phase": "joining"}).encode()
            for name, token in tokens.items()
        },
    )


async def _compare(one: domain.Domain, bodies: Mapping[str, bytes]) -> None:
    """Over all tries so far, so that the medians settle on a machine that does other things too.

    One reason is measured beside them as often as there are reasons. Where even that one lies apart
    from itself in the end, or more work waits than there are processors, the machine is too busy to
    say anything.
    """
    first = next(iter(bodies.values()))
    same = {f"{number} of one": first for number in range(len(bodies))}
    await _measure(one, bodies, taken=collections.defaultdict(list))
    taken: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(TRIES):
        await _measure(one, {**bodies, **same}, taken=taken)
        medians = {reason: statistics.median(times) for reason, times in taken.items()}
        if _are_alike([medians[reason] for reason in bodies]):
            return
    if os.getloadavg()[0] > (os.cpu_count() or 1) or not _are_alike(
        [medians[name] for name in same]
    ):
        pytest.skip("this machine is too busy to measure half a millisecond")
    apart = {reason: round(1000 * median, 3) for reason, median in medians.items()}
    raise AssertionError(f"The medians in ms lie apart: {apart}")
