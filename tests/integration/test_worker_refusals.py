"""What a join makes of every answer that is no success: its exit code, its words, its files."""

import asyncio
import contextlib
import datetime
import json
import pathlib
from collections.abc import AsyncIterator

import pytest

from tests.support import clocks, imaginary_platform, joining, machine, worker_command
from wire_protocol import join_token, problems
from worker_agent.door import platform as door
from worker_agent.settings import failures

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


@pytest.fixture
def machine_to_be(tmp_path: pathlib.Path) -> joining.Joining:
    return joining.Joining(folder=tmp_path / "worker")


def problem(code: str, detail: str = "", **headers: str) -> imaginary_platform.Fault:
    document = problems.Problem(code=code, detail=detail)
    return imaginary_platform.answer_with(document.meaning.status, document.to_json(), **headers)


HTML = b"<html><body>It works!</body></html>"
ANSWERS: dict[str, tuple[imaginary_platform.Fault, int, str]] = {
    "the uniform refusal": (problem("enrollment-refused"), 3, "Enrollment refused."),
    "a machine that is newer": (problem("worker-newer", "0.1.0 > 0.0.9"), 6, "0.1.0 > 0.0.9"),
    "a conflict": (problem("node-exists", "It is configured."), 4, "It is configured."),
    "input that the Platform does not take": (problem("invalid", "url: no"), 2, "url: no"),
    "nothing at that address": (imaginary_platform.answer_with(404), 5, "no enrollment listener"),
    "a web page in place of an answer": (imaginary_platform.answer_with(200, HTML), 1, "no enroll"),
    "a web page that forbids": (imaginary_platform.answer_with(403, HTML), 3, "refused"),
    "a fault of the Platform": (imaginary_platform.answer_with(500, HTML), 1, "500"),
    "JSON of another kind": (imaginary_platform.answer_with(201, b'{"ok":true}'), 1, "no enroll"),
    "a permanent redirect": (
        imaginary_platform.answer_with(301, location="https://evil.example/"),
        2,
        "https://evil.example/",
    ),
    "a temporary redirect": (
        imaginary_platform.answer_with(307, location="https://evil.example/"),
        2,
        "never followed",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_the_join_ends_by_the_table_of_exit_codes_after(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining, case: str
) -> None:
    fault, code, words = ANSWERS[case]
    platform.faults = [fault]
    with pytest.raises(failures.Failure) as raised:
        await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    assert raised.value.exit_code == code
    assert words in str(raised.value)
    assert len(platform.asked) == 1, "an answer that is final is not asked for again"
    assert sorted(path.name for path in machine_to_be.folder.iterdir()) == ["identity", "lock"]


TRANSIENT: dict[str, imaginary_platform.Fault] = {
    "too many attempts": problem("too-many", **{"retry-after": "3"}),
    "a Platform that restarts": problem("unavailable", **{"retry-after": "2"}),
    "a gateway that finds nobody": imaginary_platform.answer_with(502, HTML),
    "a connection that is cut": imaginary_platform.cut,
}


@pytest.mark.parametrize("case", TRANSIENT)
async def test_the_join_is_tried_again_after(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining, case: str
) -> None:
    platform.faults = [TRANSIENT[case]] * 2
    done = await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    assert done.agent.node_id == "web-1"
    assert len(platform.asked) == 3
    assert len(machine_to_be.said) == 2
    assert all("Trying again in" in said for said in machine_to_be.said)


async def test_a_join_waits_as_long_as_it_is_asked_to(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    clock = clocks.ShiftedClock()
    machine_to_be.clock = clock
    platform.faults = [problem("too-many", **{"retry-after": "9"})]
    await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    assert clock.sleeps[0] == 9


async def test_a_join_gives_up_in_time_says_so_and_ends_temporary(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    clock = clocks.ShiftedClock()
    machine_to_be.clock = clock
    platform.faults = [problem("unavailable")] * 100
    with pytest.raises(failures.Temporary, match=r"Gave up after \d+ tries in \d+ s") as raised:
        await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    assert raised.value.exit_code == 75
    assert sum(clock.sleeps) <= door.PATIENCE_SECONDS


async def test_a_wait_longer_than_the_patience_ends_at_once(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    platform.faults = [problem("too-many", **{"retry-after": "120"})]
    with pytest.raises(failures.Temporary):
        await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    assert len(platform.asked) == 1


async def test_nobody_at_the_address_is_temporary(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    platform.port = machine.free_port()
    with pytest.raises(failures.Temporary, match="Could not connect"):
        await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())


@contextlib.asynccontextmanager
async def black_hole() -> AsyncIterator[int]:
    """A port that takes connections and never says a word."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while await reader.read(65_536):
                pass

    serving = await asyncio.start_server(swallow, "127.0.0.1", 0)
    try:
        yield serving.sockets[0].getsockname()[1]
    finally:
        serving.close()


async def test_a_network_that_swallows_everything_ends_the_join_when_the_patience_does(
    platform: imaginary_platform.ImaginaryPlatform,
    machine_to_be: joining.Joining,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "PATIENCE_SECONDS", 1.0)
    async with black_hole() as port, asyncio.timeout(10):
        platform.port = port
        with pytest.raises(failures.Temporary, match="Gave up after 1 try in 1 s") as raised:
            await machine_to_be.join(platform.issue("web-1"))
    assert raised.value.exit_code == 75


async def test_a_later_try_gets_what_the_earlier_ones_have_left(
    platform: imaginary_platform.ImaginaryPlatform,
    machine_to_be: joining.Joining,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "PATIENCE_SECONDS", 10.0)
    platform.faults = [problem("too-many", **{"retry-after": "9"}), imaginary_platform.never]
    async with asyncio.timeout(8):
        with pytest.raises(failures.Temporary, match="Gave up after 2 tries in 10 s"):
            await machine_to_be.join(platform.issue("web-1"))


DATES = [
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    "Mon, 1 Jan 2026 1:1:1 -99999999999999999999999",
    "Mon, 01 Jan 2026 00:00:00 +9999",
    "yesterday",
]


@pytest.mark.parametrize("date", DATES)
async def test_a_date_that_is_none_changes_nothing_about_the_answer(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining, date: str
) -> None:
    platform.faults = [problem("enrollment-refused", date=date)]
    with pytest.raises(failures.Refused):
        await machine_to_be.join(platform.issue("web-1", expires_in=-HOUR))


async def test_a_platform_that_was_set_back_gets_no_joined_machine_by_a_new_token(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    platform.serial = 9
    await machine_to_be.join(platform.issue("web-1"))
    platform.serial = 3
    before = worker_command.contents(machine_to_be.folder)
    with pytest.raises(failures.NeedsOperator, match="older than the one held") as raised:
        await machine_to_be.join(platform.issue("web-1"))
    assert str(raised.value).endswith(f"mv {machine_to_be.folder} {machine_to_be.folder}.old")
    assert worker_command.contents(machine_to_be.folder) == before


async def test_a_platform_that_was_rebuilt_at_the_same_address_is_not_believed(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    await machine_to_be.join(platform.issue("web-1"))
    stranger = platform.new_key()
    platform.publish(stranger, signed_by=(stranger,))
    before = worker_command.contents(machine_to_be.folder)
    with pytest.raises(failures.NeedsOperator, match="or that was rebuilt"):
        await machine_to_be.join(platform.issue("web-1"))
    assert worker_command.contents(machine_to_be.folder) == before


async def test_a_refusal_of_an_expired_token_says_when_it_expired_and_what_to_run(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    token = platform.issue("web-1", expires_in=-HOUR)
    platform.faults = [problem("enrollment-refused")]
    with pytest.raises(failures.Refused) as raised:
        await machine_to_be.join(token, port=machine.free_port())
    expires_at = join_token.decode(token).expires_at
    assert f"expired at {expires_at:%Y-%m-%dT%H:%M:%S}" in str(raised.value)
    assert str(raised.value).endswith("enlist nodes enroll-token web-1 --replace")


async def test_a_wrong_clock_does_not_call_a_fresh_token_expired(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    machine_to_be.clock = clocks.ShiftedClock(ahead=48 * HOUR)
    token = platform.issue("web-1")
    del platform.enrollments[join_token.decode(token).token.enrollment_id]
    with pytest.raises(failures.Refused) as raised:
        await machine_to_be.join(token, port=machine.free_port())
    assert "expired at" not in str(raised.value)
    assert "ahead of the Platform's" in str(raised.value)


async def test_a_trust_set_by_none_of_the_keys_that_the_join_token_names_is_not_believed(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    token = platform.issue("web-1")
    stranger = platform.new_key()
    platform.keys = platform.signers = [stranger]
    with pytest.raises(failures.NeedsOperator, match="not believed"):
        await machine_to_be.join(token, port=machine.free_port())
    assert not machine_to_be.where.trust.exists()


async def test_an_answer_for_another_node_is_not_taken_over(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    body = json.dumps({"node_id": "web-2", "agent_id": "agent-web-2", "generation": 1}).encode()
    platform.faults = [imaginary_platform.answer_with(201, body)]
    with pytest.raises(failures.Fault, match="web-2"):
        await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())


BAD_INPUT = {
    "no token at all": ([], "", "No token was given"),
    "an empty stdin": (["-"], "", "stdin is empty"),
    "a cut join token": (["-"], "enj_abc", "damaged"),
    "an enrollment token in the join token's place": (["-"], "ent_0", "starts with enj_"),
    "a mistyped enrollment token": (
        ["--platform-url", "https://p:1", "--node-id", "a", "--enrollment-token-file", "-"],
        "ent_0123456789abcdef_" + "0" * 64 + "_00000000",
        "typing error",
    ),
    "a missing token file": (["--join-token-file", "/nowhere/token"], "", "cannot be read"),
    "a port below 1024": (["-", "--address", "127.0.0.1", "--port", "443"], "JOIN", "--port: 443"),
    "a port without an address": (["-", "--port", "8443"], "JOIN", "--port belongs to --address"),
    "an address with a port": (["-", "--address", "10.0.0.1:80"], "JOIN", "--address"),
    "a link-local address": (["-", "--address", "fe80::1"], "JOIN", "cannot be dialled"),
    "a label without a value": (["-", "--label", "rack"], "JOIN", "write KEY=VALUE"),
    "seventeen labels": (
        ["-", *(part for at in range(17) for part in ("--label", f"k{at}=v"))],
        "JOIN",
        "At most 16",
    ),
    "a fingerprint that is none": (
        ["-", "--platform-fingerprint", "sha256:xyz"],
        "JOIN",
        "64 hex digits",
    ),
    "a node id that the token is not for": (["-", "--node-id", "web-9"], "JOIN", "web-9"),
    "a CA file that is none": (["-", "--platform-ca-file", "/dev/null"], "JOIN", "no PEM"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
async def test_bad_input_ends_with_two_and_sends_nothing(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path, case: str
) -> None:
    arguments, stdin, words = BAD_INPUT[case]
    folder = tmp_path / "worker"
    done = await worker_command.enlist(
        *("worker", "join", *arguments, "--data-dir", str(folder)),
        stdin=platform.issue("web-1") if stdin == "JOIN" else stdin,
    )
    assert done.code == 2, done.err
    assert words in done.err
    assert platform.asked == []
    assert not folder.exists()
