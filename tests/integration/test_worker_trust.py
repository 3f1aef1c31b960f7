"""Trust refreshed by hand and by the Agent: what is believed, what is kept, how often it asks."""

import asyncio
import base64
import dataclasses
import datetime
import json
import pathlib
import random
import socket
from collections.abc import AsyncIterator

import pytest

from runtime_kit import secret
from tests.support import (
    certificates,
    clocks,
    imaginary_platform,
    joining,
    machine,
    worker_command,
)
from wire_protocol import pins
from worker_agent.app import anchors, keeper
from worker_agent.door import platform as door
from worker_agent.enrollment import wish
from worker_agent.settings import agent_file, failures, join_file, trust_file
from worker_agent.trust import refresh

HTML = b"<html><body>It works!</body></html>"


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


@pytest.fixture
async def node(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> joining.Joining:
    """A machine that has joined."""
    joined = joining.Joining(folder=tmp_path / "worker")
    await joined.join(platform.issue("web-1"), port=machine.free_port())
    platform.asked.clear()
    return joined


async def refreshed(node: joining.Joining) -> refresh.Refreshed:
    return await refresh.refresh(
        node.where, clock=node.clock, warn=node.warned.append, environment={}
    )


async def test_the_question_is_empty_and_the_new_key_is_kept(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.publish(platform.keys[0], platform.new_key())
    done = await refreshed(node)
    assert platform.asked == [("/api/v1/trust", b"{}")]
    assert done.added == (platform.keys[1].public.key_id,)
    held = trust_file.read(node.where.trust)
    assert held is not None
    assert held.statement.number == (1, 2)


async def test_a_machine_that_was_away_for_two_rotations_follows_the_chain(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    second, third = platform.new_key(), platform.new_key()
    platform.publish(platform.keys[0], second)
    platform.publish(second, signed_by=(second,))
    platform.publish(second, third, signed_by=(second, third))
    platform.publish(third, signed_by=(third,))
    done = await refreshed(node)
    assert [key.key_id for key in done.after.statement.trust_keys] == [third.public.key_id]


async def test_a_platform_whose_tls_key_changed_is_known_by_the_keys_already_held(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.tls_identity = certificates.issue()
    platform.publish(*platform.keys)
    first = await refreshed(node)
    second = await refreshed(node)
    assert (first.changed, first.matched) == (True, False)
    assert (second.changed, second.matched) == (False, True), "the new pin was not adopted"
    (warning,) = node.warned
    assert platform.tls_identity.pin in warning
    assert platform.asked == [("/api/v1/trust", b"{}")] * 2


async def test_an_address_from_a_statement_is_asked_first_and_the_joins_own_stays_as_well(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.stated_url = f"https://127.0.0.1:{machine.free_port()}"
    platform.publish(*platform.keys)
    await refreshed(node)
    join, held = refresh.load(node.where)
    assert refresh.addresses(join, held) == (platform.stated_url, platform.url)
    assert not (await refreshed(node)).changed, "nobody answers at the first, so the second"


async def test_an_address_that_swallows_everything_leaves_time_for_the_next(
    platform: imaginary_platform.ImaginaryPlatform,
    node: joining.Joining,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
        platform.stated_url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        platform.publish(*platform.keys)
        await refreshed(node)
        monkeypatch.setattr(door, "PATIENCE_SECONDS", 4.0)
        async with asyncio.timeout(10):
            assert not (await refreshed(node)).changed


async def test_a_statement_with_a_time_that_is_none_is_not_believed_and_changes_nothing(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    signed = platform.trust_document()
    content = json.loads(base64.b64decode(str(signed["statement"])))
    content["issued_at"] = "0001-01-01T00:00:00+23:59"
    signed["statement"] = base64.b64encode(json.dumps(content).encode()).decode()
    platform.faults = [imaginary_platform.answer_with(200, json.dumps(signed).encode())]
    before = worker_command.contents(node.folder)
    with pytest.raises(failures.NeedsOperator, match="issued_at must be an RFC 3339 time"):
        await refreshed(node)
    assert worker_command.contents(node.folder) == before


async def test_pins_of_a_statement_do_not_count_where_a_ca_file_was_given(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    join, held = refresh.load(node.where)
    assert refresh.known_pins(join, held) == {pins.Pin(platform.tls_identity.pin)}
    by_ca = dataclasses.replace(join, mode=join_file.Mode.CA_FILE, pins=())
    assert refresh.known_pins(by_ca, held) == frozenset()
    assert refresh.addresses(by_ca, held) == (platform.url,)


async def test_an_impostor_with_keys_of_its_own_is_not_believed_and_nothing_changes(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    before = worker_command.contents(node.folder)
    platform.tls_identity = certificates.issue()
    stranger = platform.new_key()
    platform.publish(stranger, signed_by=(stranger,))
    with pytest.raises(failures.NeedsOperator, match="not believed"):
        await refreshed(node)
    assert worker_command.contents(node.folder) == before


async def test_an_older_statement_is_not_believed(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.publish(platform.keys[0], platform.new_key())
    await refreshed(node)
    platform.serial = 1
    with pytest.raises(failures.NeedsOperator, match="older"):
        await refreshed(node)


OUTAGES: dict[str, imaginary_platform.Fault] = {
    "nothing there": imaginary_platform.answer_with(404),
    "a fault": imaginary_platform.answer_with(500, HTML),
    "a web page": imaginary_platform.answer_with(200, HTML),
    "an empty answer": imaginary_platform.answer_with(200, b""),
    "JSON of another kind": imaginary_platform.answer_with(200, b'{"id":0}'),
    "a redirect": imaginary_platform.answer_with(302, location="https://evil.example/"),
    "too many": imaginary_platform.answer_with(429),
    "a cut": imaginary_platform.cut,
}


@pytest.mark.parametrize("outage", OUTAGES)
async def test_identity_and_trust_are_untouched_by(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining, outage: str
) -> None:
    before = worker_command.contents(node.folder)
    platform.publish(platform.keys[0], platform.new_key())
    platform.faults = [OUTAGES[outage]]
    with pytest.raises(failures.Failure):
        await refreshed(node)
    assert worker_command.contents(node.folder) == before
    assert (await refreshed(node)).changed, "the next question finds everything as before"


async def test_after_the_third_failure_an_agent_asks_at_most_once_a_minute(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.tls_identity = certificates.issue()  # the Platform's keys are all others now
    stranger = platform.new_key()
    platform.publish(stranger, signed_by=(stranger,))
    clock = Counting(stop_after=12)
    _, held = refresh.load(node.where)
    keeping = keeper.Keeper(
        node.where,
        trusted=anchors.Anchors(node.where, held=held, clock=clock),
        clock=clock,
        chance=random.Random(7),
        environment={},
    )
    with pytest.raises(Enough):
        await keeping.run()
    assert min(clock.sleeps[2:]) >= 60
    assert max(clock.sleeps) <= 3600
    assert len(platform.asked) == 12


class Enough(Exception):
    """The test has seen what it wanted."""


class Counting(clocks.ShiftedClock):
    """Ends the test after so many waits."""

    def __init__(self, *, stop_after: int) -> None:
        super().__init__(ahead=datetime.timedelta(0))
        self._stop_after = stop_after

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if len(self.sleeps) >= self._stop_after:
            raise Enough


async def test_the_command_prints_what_changed(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.publish(platform.keys[0], platform.new_key())
    command = ("worker", "refresh-trust", "--data-dir", str(node.folder), "-o", "json")
    first = await worker_command.enlist(*command)
    second = await worker_command.enlist(*command)
    assert (first.code, first.document["changed"]) == (0, True)
    assert first.document["added"] == [platform.keys[1].public.key_id]
    assert (second.code, second.document["changed"]) == (0, False)


async def test_check_tells_what_would_change_and_writes_nothing(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    before = worker_command.contents(node.folder)
    platform.publish(platform.keys[0], platform.new_key())
    done = await worker_command.enlist(
        "worker", "refresh-trust", "--check", "--data-dir", str(node.folder), "-o", "json"
    )
    assert (done.code, done.document["changed"]) == (0, True)
    assert worker_command.contents(node.folder) == before


async def test_a_folder_that_cannot_be_written_keeps_the_agent_asking_later(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.publish(platform.keys[0], platform.new_key())
    node.where.lock.unlink()
    node.where.lock.symlink_to("elsewhere")
    with pytest.raises(failures.Temporary, match="cannot be opened"):
        await refreshed(node)


async def test_the_command_ends_with_six_on_a_machine_that_has_not_joined(
    tmp_path: pathlib.Path,
) -> None:
    done = await worker_command.enlist("worker", "refresh-trust", "--data-dir", str(tmp_path))
    assert done.code == 6
    assert done.err.strip().endswith("enlist worker join -")


async def test_only_where_every_address_proves_nothing_is_it_not_believed(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    stranger = platform.new_key()
    platform.publish(stranger, signed_by=(stranger,))
    with pytest.raises(failures.NotBelieved):
        await refreshed(node)
    join = join_file.read(node.where.join)
    assert join is not None
    elsewhere = dataclasses.replace(join, platform_url=f"https://127.0.0.1:{machine.free_port()}")
    join_file.write(node.where.join, elsewhere)
    with pytest.raises(failures.NeedsOperator) as raised:
        await refreshed(node)
    assert not isinstance(raised.value, failures.NotBelieved), "at one address nobody answered"


def gateway_of(node: joining.Joining) -> tuple[str | None, tuple[str, ...]]:
    agent = agent_file.read(node.where.agent)
    assert agent is not None
    return agent.gateway_url, agent.gateway_pins


async def test_without_pins_a_changed_gateway_is_adopted_from_a_proved_connection_alone(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    authority = certificates.issue(authority=True, common_name="ca")
    platform.tls_identity = certificates.issue(issuer=authority)
    node = joining.Joining(folder=tmp_path / "by-ca")
    given = wish.Given(
        platform_url=platform.url,
        node_id="web-9",
        enrollment_token=token_of(platform, "web-9"),
        ca_pem=authority.pem.encode(),
    )
    await node.join_by(given)
    assert gateway_of(node) == (None, ())
    new = "sha256:" + "ab" * 32
    platform.gateway_urls = ("https://gateway.example:8445",)
    platform.gateway_pins = (pins.Pin(new),)
    platform.publish(*platform.keys)
    body = json.dumps(platform.trust_document()).encode()
    await refresh.take(node.where, body, source="the session", clock=node.clock)
    assert gateway_of(node) == (None, ()), "a session is proved by pins, not by the CA"
    await refreshed(node)
    assert gateway_of(node) == ("https://gateway.example:8445", (new,))


async def test_a_joined_by_pin_machine_leaves_the_gateway_of_its_join_as_it_was(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    platform.gateway_urls = ("https://gateway.example:8445",)
    platform.gateway_pins = (pins.Pin("sha256:" + "ab" * 32),)
    platform.publish(*platform.keys)
    await refreshed(node)
    assert gateway_of(node) == (None, ()), "the statement itself says it, and is signed"


def token_of(platform: imaginary_platform.ImaginaryPlatform, node_id: str) -> secret.Secret:
    platform.issue(node_id)
    enrolled = next(one for one in platform.enrollments.values() if one.node_id == node_id)
    return secret.Secret(enrolled.token.text())
