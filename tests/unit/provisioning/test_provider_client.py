"""The JSON client: announces, sends once, follows nothing, reads so much and no more."""

import asyncio
import datetime
from collections.abc import Callable, Mapping

import httpx
import pytest

from provisioning import answers, client, contract, outcomes, providers
from runtime_kit import clock as clock_kit
from tests.support import waits

NOW = datetime.datetime(2026, 12, 1, 12, 0, tzinfo=datetime.UTC)
GET = contract.ApiCall(name="GET /things", feature=contract.Feature.CATALOG)
POST = contract.ApiCall(name="POST /things", feature=contract.Feature.MACHINES, changes=True)
SHORT = providers.TimeLimits(connect=0.2, read=0.2, create=0.2)

Answering = Callable[[httpx.Request], httpx.Response]


class Net(httpx.AsyncBaseTransport):
    """A network that answers as it is told and counts."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.seen: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        self.seen.append(request)
        return self._answering(request)


async def _observe(_: contract.ApiCall) -> None:
    await asyncio.sleep(0)


async def _proof(_: contract.ApiCall) -> Mapping[str, str]:
    await asyncio.sleep(0)
    return {"authorization": "Bearer a-token-of-the-tests"}


def speaking(
    answering: Answering,
    *,
    observer: contract.Observer = _observe,
    limits: providers.TimeLimits = SHORT,
) -> tuple[client.Client, Net]:
    net = Net(answering)
    made = client.Client(
        "https://cloud.example/v1",
        observer=observer,
        clock=clock_kit.ManualClock(NOW),
        headers=_proof,
        read=lambda body: (str(body.get("code", "")), str(body.get("message", ""))),
        table={
            "sold_out": answers.Verdict(
                outcome=outcomes.Outcome.NOT_DONE_RETRYABLE, topic=outcomes.Topic.CAPACITY
            )
        },
        limits=limits,
        transport=net,
    )
    return made, net


async def failing(one: client.Client, call: contract.ApiCall = POST) -> outcomes.Fault:
    with pytest.raises(outcomes.Fault) as caught:
        await one.send(call, "/things", body={"name": "n"})
    await one.close()
    return caught.value


async def test_a_success_is_parsed_and_its_budget_kept() -> None:
    headers = {"RateLimit-Remaining": "9", "RateLimit-Limit": "10"}
    one, net = speaking(lambda _: httpx.Response(201, json={"id": 1}, headers=headers))
    answer = await one.send(POST, "/things", body={"name": "n"}, params={"a": "b c"})
    await one.close()
    assert (answer.status, answer.body) == (201, {"id": 1})
    assert one.budget == answers.Budget(left=9, most=10)
    assert str(net.seen[0].url) == "https://cloud.example/v1/things?a=b+c"
    assert net.seen[0].headers["authorization"] == "Bearer a-token-of-the-tests"


async def test_an_empty_success_has_no_body() -> None:
    one, _ = speaking(lambda _: httpx.Response(204))
    assert (await one.send(POST, "/things")).body is None
    await one.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    elsewhere = {"location": "https://elsewhere.example/"}
    one, net = speaking(lambda _: httpx.Response(status, headers=elsewhere))
    fault = await failing(one)
    assert fault.outcome is outcomes.Outcome.UNKNOWN
    assert len(net.seen) == 1


@pytest.mark.parametrize("status", [200, 201, 400, 404, 500, 502])
async def test_whatever_is_no_json_is_unknown(status: int) -> None:
    one, net = speaking(lambda _: httpx.Response(status, text="<html>Bad Gateway</html>"))
    assert (await failing(one)).outcome is outcomes.Outcome.UNKNOWN
    assert len(net.seen) == 1


async def test_an_error_is_judged_by_its_code_and_sent_once() -> None:
    body = {"code": "sold_out", "message": "try fsn1"}
    one, net = speaking(lambda _: httpx.Response(500, json=body))
    fault = await failing(one)
    assert fault.topic is outcomes.Topic.CAPACITY
    assert "try fsn1" in str(fault)
    assert len(net.seen) == 1


def raising(fault: Exception) -> Answering:
    def answer(_: httpx.Request) -> httpx.Response:
        raise fault

    return answer


@pytest.mark.parametrize(
    "fault",
    [httpx.ConnectError("refused"), httpx.ConnectTimeout("late"), httpx.PoolTimeout("busy")],
    ids=lambda fault: type(fault).__name__,
)
async def test_without_a_connection_nothing_was_sent(fault: Exception) -> None:
    one, _ = speaking(raising(fault))
    found = await failing(one)
    assert found.outcome is outcomes.Outcome.NOT_DONE_RETRYABLE
    assert found.topic is outcomes.Topic.NETWORK


@pytest.mark.parametrize(
    "fault",
    [
        httpx.ReadError("cut"),
        httpx.ReadTimeout("late"),
        httpx.WriteError("cut"),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        httpx.DecodingError("no gzip"),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_once_sent_a_lost_answer_is_unknown(fault: Exception) -> None:
    one, net = speaking(raising(fault))
    assert (await failing(one)).outcome is outcomes.Outcome.UNKNOWN
    assert len(net.seen) == 1


async def test_an_answer_without_end_is_cut_off() -> None:
    async def endless() -> object:
        while True:
            yield b"x" * 1_048_576

    one, _ = speaking(lambda _: httpx.Response(200, content=endless()))  # type: ignore[arg-type]
    fault = await failing(one, GET)
    assert fault.outcome is outcomes.Outcome.UNKNOWN
    assert "longer than" in str(fault)


async def test_an_answer_that_drips_ends_with_its_time() -> None:
    async def dripping() -> object:
        while True:
            yield b"x"
            await waits.pace()

    one, _ = speaking(lambda _: httpx.Response(200, content=dripping()))  # type: ignore[arg-type]
    async with asyncio.timeout(1.5):
        assert (await failing(one, GET)).outcome is outcomes.Outcome.UNKNOWN


async def test_what_cannot_be_recorded_is_not_sent() -> None:
    async def refuse(_: contract.ApiCall) -> None:
        await asyncio.sleep(0)
        raise OSError("no space left on device")

    one, net = speaking(lambda _: httpx.Response(201, json={}), observer=refuse)
    with pytest.raises(OSError, match="no space left"):
        await one.send(POST, "/things")
    await one.close()
    assert net.seen == []


def test_no_limit_outside_tests_is_shorter_than_a_minute() -> None:
    """B24: five seconds and blind repeats had an account locked."""
    assert providers.TimeLimits().read >= 60
    assert providers.TimeLimits().create >= 60
