"""Replies cut off in their middle, and throttles, made by a stranger's tool (microburst).

It stands before the proxy that keeps client tokens, so that what a plain client would do twice is
seen there.
"""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from provisioning import contract, outcomes, providers
from tests.support import machine, waits
from tests.support.clouds import aws_bench

RUN = "ec2:RunInstances"
_STOPS_WITHIN = 10.0


@pytest.fixture
def bench() -> Iterator[aws_bench.AwsBench]:
    with aws_bench.AwsBench() as opened:
        yield opened


@dataclasses.dataclass(frozen=True)
class Burst:
    """A running microburst, and a driver behind it."""

    where: str
    driver: contract.Driver

    def rule(self, **rule: Any) -> None:
        """What happens to the next order."""
        connection = http.client.HTTPConnection(self.where, timeout=10)
        rules = [{"service": "ec2", "operation": "RunInstances", "times": 1, **rule}]
        connection.request("POST", "/_microburst/rules", body=json.dumps(rules))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        connection.close()


@pytest.fixture
async def burst(bench: aws_bench.AwsBench, tmp_path: pathlib.Path) -> AsyncIterator[Burst]:
    port = machine.free_port()
    where = f"127.0.0.1:{port}"
    with _running(tmp_path, port=port, upstream=bench.address):
        await waits.until(lambda: _answers(where), seconds=60)
        opening = dataclasses.replace(bench.opening(), endpoints={"": f"http://{where}"})
        driver = providers.open_driver("aws", opening)
        try:
            yield Burst(where, driver)
        finally:
            await driver.close()


@contextlib.contextmanager
def _running(folder: pathlib.Path, *, port: int, upstream: str) -> Iterator[None]:
    program = pathlib.Path(sys.executable).with_name("microburst")
    with (
        (folder / "microburst.log").open("wb") as log,
        subprocess.Popen(
            [
                program,
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--upstream",
                upstream,
                "--no-resign",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            process.wait(_STOPS_WITHIN)


def _answers(where: str) -> bool:
    connection = http.client.HTTPConnection(where, timeout=5)
    try:
        connection.request("GET", "/_microburst/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


async def failed(burst: Burst, request: contract.Request) -> outcomes.Fault:
    with pytest.raises(outcomes.Fault) as caught:
        await burst.driver.create(request)
    return caught.value


async def settled(burst: Burst, bench: aws_bench.AwsBench) -> contract.Request:
    plan = await burst.driver.plan(bench.request())
    assert plan.settled is not None
    return plan.settled


@pytest.mark.parametrize("sent", [1, 400])
async def test_an_order_whose_reply_is_cut_is_unknown_and_never_buys_a_second_machine(
    bench: aws_bench.AwsBench, burst: Burst, sent: int
) -> None:
    request = await settled(burst, bench)
    burst.rule(response={"abort_bytes": sent})
    fault = await failed(burst, request)
    assert fault.outcome is outcomes.Outcome.UNKNOWN
    assert bench.ledger.count(RUN) == 1
    created = await burst.driver.create(request)  # which is EC2's own look-up
    assert [one.ref for one in bench.ledger.living()] == [created.ref]


async def test_an_order_whose_connection_is_reset_is_unknown(
    bench: aws_bench.AwsBench, burst: Burst
) -> None:
    request = await settled(burst, bench)
    burst.rule(reset=True)
    fault = await failed(burst, request)
    assert fault.outcome is outcomes.Outcome.UNKNOWN
    assert len(bench.ledger.living()) <= 1


async def test_a_throttled_order_was_not_done_and_is_not_repeated_by_the_library(
    bench: aws_bench.AwsBench, burst: Burst
) -> None:
    request = await settled(burst, bench)
    burst.rule(error={"code": "RequestLimitExceeded", "status": 503})
    fault = await failed(burst, request)
    assert fault.outcome is outcomes.Outcome.NOT_DONE_RETRYABLE
    assert fault.topic is outcomes.Topic.RATE
    assert bench.ledger.living() == []
