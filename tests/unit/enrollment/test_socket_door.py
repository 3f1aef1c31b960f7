"""What comes over run/enroll.sock, without a store."""

import json
from typing import Any

from platform_server.endpoints import enroll_door, enroll_server
from platform_server.store import contract
from runtime_kit.http1 import messages


class _Recorder:
    """Stands where the door stands and notes who was said to call."""

    def __init__(self, *, fault: Exception | None = None) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.request_ids: list[str] = []
        self._fault = fault

    async def answer_enroll(
        self, _body: bytes, *, address: str | None, request_id: str
    ) -> enroll_door.DoorAnswer:
        self.request_ids.append(request_id)
        self.calls.append(("enroll", address))
        if self._fault is not None:
            raise self._fault
        return enroll_door.REFUSED

    async def answer_trust(
        self, _body: bytes, *, address: str | None, request_id: str
    ) -> enroll_door.DoorAnswer:
        self.calls.append(("trust", address))
        return enroll_door.limited(7, request_id=request_id)


async def _ask(door: _Recorder, *, method: str = "POST", target: str, **headers: str) -> Any:
    request = messages.Request(
        method=method, target=target.encode(), headers=headers, body=b"{}", peer=""
    )
    return await enroll_server.SocketDoor(door).answer(request)  # type: ignore[arg-type]


async def test_the_listener_says_who_calls() -> None:
    door = _Recorder()
    await _ask(door, target="/api/v1/enroll", **{"x-enlist-peer": "192.0.2.1"})
    assert door.calls == [("enroll", "192.0.2.1")]


async def test_without_that_word_the_caller_is_unknown_and_not_this_machine() -> None:
    door = _Recorder()
    await _ask(door, target="/api/v1/trust")
    assert door.calls == [("trust", "")]


async def test_nothing_but_the_two_requests_is_answered() -> None:
    door = _Recorder()
    for method, target in (
        ("GET", "/api/v1/enroll"),
        ("POST", "/api/v1/enroll/"),
        ("POST", "/api/v1/enroll?check=true"),
        ("POST", "/api/v1/nodes"),
    ):
        answered = await _ask(door, method=method, target=target)
        assert (answered.status, answered.body) == (404, b"")
    assert door.calls == []


async def test_a_limit_travels_as_retry_after() -> None:
    answered = await _ask(_Recorder(), target="/api/v1/trust")
    assert (answered.status, answered.headers["retry-after"]) == (429, "7")


async def test_a_store_that_is_busy_full_or_away_is_503_with_a_wait() -> None:
    for fault in (
        contract.StoreBusy("busy"),
        contract.StoreFull("full"),
        contract.StoreUnreachable("away"),
    ):
        answered = await _ask(_Recorder(fault=fault), target="/api/v1/enroll")
        assert answered.status == 503
        assert int(answered.headers["retry-after"]) >= 1
        assert len(json.loads(answered.body)["request_id"]) == 16


async def test_a_fault_of_ours_is_a_500_that_says_nothing_of_itself() -> None:
    answered = await _ask(_Recorder(fault=KeyError("secret")), target="/api/v1/enroll")
    assert answered.status == 500
    assert b"secret" not in answered.body


async def test_every_request_has_an_id_of_its_own_which_its_problem_carries() -> None:
    door = _Recorder()
    for _ in range(2):
        await _ask(door, target="/api/v1/enroll")
    assert len(set(door.request_ids)) == 2
    refused = await _ask(door, target="/api/v1/trust")
    assert len(json.loads(refused.body)["request_id"]) == 16
    broken = await _ask(_Recorder(fault=contract.StoreError("odd")), target="/api/v1/enroll")
    document = json.loads(broken.body)
    assert document["request_id"] in document["detail"]
