"""The node's session over months of simulated time: when it returns, renews, asks, and stops.

Everything is the product's own code but the network, which is a pair of links in memory.

Long because each claim is about one whole life of a session, and all share one small world.
"""

import asyncio
import collections
import datetime
import pathlib
import random
import shutil
from collections.abc import Iterator

import pytest

from runtime_kit.mux import link as links
from tests.support import dialling, imaginary_gateway, imaginary_platform, virtual_time
from wire_protocol import session
from worker_agent.identity import certificates, own, replacing
from worker_agent.session import client, connecting, pace, renewal
from worker_agent.settings import agent_file, failures

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture(autouse=True)
def async_runner() -> Iterator[asyncio.Runner]:
    """The loop whose time jumps."""
    runner = asyncio.Runner(loop_factory=virtual_time.Loop)
    try:
        yield runner
    finally:
        runner.close()


@pytest.fixture
def clock(async_runner: asyncio.Runner) -> virtual_time.VirtualClock:
    loop = async_runner.get_loop()
    assert isinstance(loop, virtual_time.Loop)
    return virtual_time.VirtualClock(loop, start=START)


@pytest.fixture
async def gateway(
    tmp_path: pathlib.Path, clock: virtual_time.VirtualClock
) -> imaginary_gateway.ImaginaryGateway:
    folder = tmp_path / "platform"
    folder.mkdir()
    made = imaginary_gateway.ImaginaryGateway(
        imaginary_platform.ImaginaryPlatform(folder, now=clock.now())
    )
    made.clock = clock
    made.announce()
    return made


@pytest.fixture
async def way(
    gateway: imaginary_gateway.ImaginaryGateway, clock: virtual_time.VirtualClock
) -> dialling.InMemory:
    return dialling.InMemory(gateway, clock=clock)


@pytest.fixture
async def node(
    tmp_path: pathlib.Path,
    gateway: imaginary_gateway.ImaginaryGateway,
    way: dialling.InMemory,
    clock: virtual_time.VirtualClock,
) -> dialling.Node:
    where = dialling.join(tmp_path / "worker", gateway=gateway, clock=clock)
    return dialling.node(where, connect=way.connect, clock=clock)


async def test_the_generation_is_stored_before_it_is_confirmed(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    gateway.loses[session.Ask.CONFIRM] = 1
    async with node.running():
        await gateway.session_of("web-1")
        assert node.agent.generation == gateway.node("web-1").generation == 3


async def test_it_beats_in_the_platforms_rhythm(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    async with node.running():
        await dialling.passes(10 * 30 + 1)
    assert len(gateway.node("web-1").beats) == 11
    assert node.told.heartbeats == 11


async def test_silence_is_noticed_within_a_minute_and_the_session_is_opened_again(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    way: dialling.InMemory,
    clock: virtual_time.VirtualClock,
) -> None:
    async with node.running():
        await dialling.passes(45)
        gone = clock.monotonic()
        way.pairs[-1].blackhole()
        await dialling.passes(61)
        assert len(way.dialled) >= 2, "half-open, and nobody noticed"
        await gateway.session_of("web-1", after=1)
        assert clock.monotonic() - gone <= 90


async def test_a_thousand_nodes_come_back_evenly_and_within_a_minute() -> None:
    # what each of them does, without its files: the real pace, an outage of seven seconds
    back: list[float] = []
    for number in range(1000):
        own_pace, now = pace.Pace(chance=random.Random(number)), 0.0
        while now < 7:
            now += own_pace.after_passing(now)
        back.append(now)
    counts = collections.Counter(int(one * 10) for one in back)
    mean = len(back) / ((max(back) - 7) * 10)
    assert max(back) <= 60
    assert max(counts.values()) < 3 * mean


async def test_while_nobody_is_there_it_tries_ever_more_rarely_and_for_ever(
    node: dialling.Node, way: dialling.InMemory, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    way.down = True
    before = (node.agent, node.certificate)
    async with node.running():
        await dialling.passes(DAY / 2)
        assert node.ended is None
        assert len(way.dialled) < 12 * 60 + 20
        way.down = False
        await dialling.passes(121)
        assert gateway.open_session("web-1") is not None
    assert (node.agent.gateway_pins, node.certificate) == (before[0].gateway_pins, before[1])


async def test_a_changed_key_is_tried_at_most_once_a_minute_after_the_third_failure(
    node: dialling.Node, way: dialling.InMemory
) -> None:
    way.other_key = True
    async with node.running():
        await dialling.passes(HOUR)
    gaps = [b - a for a, b in zip(way.dialled, way.dialled[1:], strict=False)]
    assert min(gaps[2:]) >= 60
    assert node.trust.asked >= 10
    assert node.ended is None, "a Platform that is believed elsewhere is not given up"


async def test_ten_minutes_of_nothing_but_unknown_keys_end_it_and_everything_is_kept(
    node: dialling.Node, way: dialling.InMemory
) -> None:
    way.other_key = True
    node.trust.answer = failures.NotBelieved("No trust key that this machine holds signed it.")
    before = (node.agent, node.certificate, node.where.trust.read_bytes())
    async with node.running():
        await dialling.passes(540)
        early = node.ended
        await dialling.passes(400)
    assert early is None
    assert isinstance(node.ended, failures.NeedsOperator)
    assert node.ended.exit_code == 6
    assert "enlist worker join -" in str(node.ended)
    assert (node.agent, node.certificate, node.where.trust.read_bytes()) == before


@pytest.mark.parametrize(
    "answer", [failures.Temporary("nobody"), failures.Fault("an HTML page"), None]
)
async def test_answers_that_prove_nothing_do_not_end_it(
    node: dialling.Node, way: dialling.InMemory, answer: failures.Failure | None
) -> None:
    way.other_key = True
    node.trust.answer = answer
    async with node.running():
        await dialling.passes(6 * HOUR)
    assert node.ended is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (session.Refusal.GENERATION_CONFLICT, "enlist nodes enroll-token"),
        (session.Refusal.NODE_REMOVED, "enlist nodes allow"),
        (session.Refusal.WORKER_NEWER, "Update the Platform"),
    ],
)
async def test_what_only_a_person_can_settle_ends_it_at_once_with_the_command(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    code: session.Refusal,
    words: str,
) -> None:
    gateway.refuses[session.Ask.HELLO] = links.Refusal(code, "It runs at 192.0.2.1")
    async with node.running():
        await dialling.passes(5)
    assert isinstance(node.ended, failures.NeedsOperator)
    assert words in str(node.ended)
    assert "It runs at 192.0.2.1" in str(node.ended)


async def test_a_refusal_that_passes_is_tried_again(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    gateway.refuses[session.Ask.HELLO] = links.Refusal(session.Refusal.NOT_NOW, "Full")
    async with node.running():
        await dialling.passes(30)
        del gateway.refuses[session.Ask.HELLO]
        await gateway.session_of("web-1")
    assert node.ended is None


async def test_the_time_that_the_platform_asks_for_is_waited(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    way: dialling.InMemory,
    clock: virtual_time.VirtualClock,
) -> None:
    async with node.running():
        await dialling.passes(40)
        link = await gateway.session_of("web-1")
        sent_away = clock.monotonic()
        link.close(reason="engine-replaced", retry_after_s=17.5)
        await gateway.session_of("web-1", after=1)
    assert way.dialled[-1] - sent_away == pytest.approx(17.5, abs=0.5)


async def test_one_that_is_always_sent_away_at_once_does_not_spin(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway, way: dialling.InMemory
) -> None:
    confirm = gateway._confirm

    def and_away(link: links.Link, peer: imaginary_gateway.Peer, said: session.Confirm) -> bytes:
        confirm(link, peer, said)
        asyncio.get_running_loop().call_later(
            0.1, lambda: link.close(reason="no", retry_after_s=0.0)
        )
        return b""

    gateway._confirm = and_away  # type: ignore[method-assign]
    async with node.running():
        await dialling.passes(HOUR)
    assert len(way.dialled) <= 75


async def test_a_newer_statement_is_fetched_over_the_session_and_believed_by_its_signature(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    async with node.running():
        await dialling.passes(1)
        gateway.platform.publish(gateway.platform.keys[0], gateway.platform.new_key())
        await dialling.passes(61)
        assert node.trust.held.statement.serial == 2
    assert (node.trust.taken, node.trust.asked) == (1, 0)


async def test_the_platform_may_ask_health_and_nothing_unknown(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    async with node.running():
        assert (await gateway.ask_health("web-1")).node_id == "web-1"
        link = await gateway.session_of("web-1")
        with pytest.raises(links.Refused) as refused:
            await link.ask("shutdown", b"", timeout_s=5)
    assert refused.value.code == session.Refusal.UNKNOWN


async def test_it_renews_in_place_ten_times_in_a_day_and_is_never_away(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    two_hours = datetime.timedelta(hours=2)
    prepare = certificates.self_signed

    def short(*arguments: object, **more: object) -> object:
        more["days"] = two_hours / datetime.timedelta(days=1)
        return prepare(*arguments, **more)  # type: ignore[arg-type]

    gateway.heartbeat_seconds = 600
    seen, gaps = set(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "self_signed", short)
        own_path = node.where.certificate
        own_path.unlink()
        own.ensure(node.where, node_id=node.agent.node_id, addresses=(), now=START, warn=print)
        gateway.node("web-1").present = own.load(node.where).certificate
        async with node.running():
            await gateway.session_of("web-1")
            for _ in range(24 * 4):
                await dialling.passes(900)
                gaps += gateway.open_session("web-1") is None
                seen.add(node.certificate)
    assert len(seen) >= 10
    assert gaps == 0
    assert node.told.reasons == []


async def test_twenty_lost_answers_to_a_renewal_lock_nobody_out(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    before = own.load(node.where)
    async with node.running() as holding:
        for number in range(20):
            sessions = gateway.node("web-1").sessions
            await gateway.session_of("web-1")
            gateway.loses[session.Ask.RENEW] = 1
            with pytest.raises(failures.Temporary):
                await holding.renew(new_key=number % 2 == 0)
            await gateway.session_of("web-1", after=sessions)
            await dialling.passes(40)
    after = own.load(node.where)
    assert gateway.asked.count(session.Ask.RENEW) >= 20
    assert after.pin != before.pin
    assert gateway.node("web-1").present == after.certificate
    assert node.ended is None


async def test_a_machine_away_for_twice_its_certificates_life_comes_back_and_renews(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    clock: virtual_time.VirtualClock,
) -> None:
    before = own.load(node.where)
    await dialling.passes(180 * DAY)
    assert before.certificate.not_valid_after_utc < clock.now()
    async with node.running():
        await dialling.passes(60)
        assert gateway.open_session("web-1") is not None
    after = own.load(node.where)
    assert after.certificate != before.certificate
    assert after.pin == before.pin


@pytest.mark.parametrize("wrong_by", [-40 * 365 * DAY, 40 * 365 * DAY])
async def test_a_clock_that_is_wrong_by_years_renews_nothing(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    clock: virtual_time.VirtualClock,
    wrong_by: float,
) -> None:
    wrong = virtual_time.VirtualClock(clock._loop, start=START)
    wrong.jump(wrong_by)
    node.around = node.around.__class__(
        **{
            **{name: getattr(node.around, name) for name in node.around.__slots__},
            "clock": wrong,
        }
    )
    before = node.certificate
    async with node.running():
        await dialling.passes(HOUR)
    assert node.certificate == before
    assert session.Ask.RENEW not in gateway.asked


async def test_a_new_key_is_signed_by_the_old_one_and_taken_into_use(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    before = own.load(node.where)
    async with node.running() as holding:
        await gateway.session_of("web-1")
        await holding.renew(new_key=True)
        await gateway.session_of("web-1", after=1)
        await dialling.passes(31)
        assert (await gateway.ask_health("web-1")).node_id == "web-1"
    after = own.load(node.where)
    assert after.pin != before.pin
    assert gateway.node("web-1").present == after.certificate
    assert not node.where.next_key.exists()
    assert not node.where.next_certificate.exists()


async def test_a_renewal_that_a_command_left_unfinished_is_finished(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    replacing.prepare(
        node.where,
        node_id=node.agent.node_id,
        addresses=(),
        now=START,
        days=90,
        new_key=True,
    )
    coming = replacing.find_next(node.where)
    assert coming is not None
    async with node.running():
        await dialling.passes(60)
        assert gateway.open_session("web-1") is not None
    assert own.load(node.where).pin == coming.pin


async def test_a_next_key_that_was_welcomed_and_not_put_in_place_still_opens_the_gateway(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    made = replacing.prepare(
        node.where, node_id=node.agent.node_id, addresses=(), now=START, days=90, new_key=True
    )
    known = gateway.node("web-1")
    known.present = made.certificate  # the Platform has promoted it; the old key counts no more
    async with node.running():
        await dialling.passes(60)
        assert gateway.open_session("web-1") is not None
    assert own.load(node.where).pin == made.pin


async def test_a_platform_put_back_from_before_the_renewal_learns_the_present_key_again(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    known = gateway.node("web-1")
    old = known.present
    async with node.running() as holding:
        await gateway.session_of("web-1")
        await holding.renew(new_key=True)
        await gateway.session_of("web-1", after=1)
        present = own.load(node.where)
        # restored: the epoch rises, the certificate and the generation are those of the backup
        known.present, known.coming, known.former = old, None, []
        known.generation, gateway.epoch = 1, 2
        await dialling.passes(40)
        link = gateway.open_session("web-1")
        assert link is not None
        link.close(reason="restored")
        await dialling.passes(120)
        assert gateway.open_session("web-1") is not None
    assert known.present == present.certificate
    assert own.load(node.where).pin == present.pin
    assert node.ended is None


async def test_where_the_gateway_knows_no_certificate_of_it_it_keeps_trying_rarely(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway, way: dialling.InMemory
) -> None:
    gateway.knows_nobody = True
    async with node.running():
        await dialling.passes(HOUR)
        assert node.ended is None
        assert len(way.dialled) <= 64
        assert "does not know this machine's certificate" in node.told.reasons[-1]
        gateway.knows_nobody = False
        await dialling.passes(121)
        assert gateway.open_session("web-1") is not None


async def test_a_disk_that_cannot_be_written_opens_no_session_and_loses_nothing(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = node.where.agent.read_bytes()

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(agent_file, "write", full)
        async with node.running():
            await dialling.passes(60)
            assert session.Ask.CONFIRM not in gateway.asked
            assert "No space left" in node.told.reasons[-1]
            patch.undo()
            await dialling.passes(60)
            assert gateway.open_session("web-1") is not None
    assert node.where.agent.read_bytes() != before


def emptied(path: pathlib.Path) -> bytes:
    """What was in the file until now."""
    content = path.read_bytes()
    path.write_bytes(b"")
    return content


def put_back(path: pathlib.Path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["agent", "join", "key", "certificate"])
async def test_a_file_that_cannot_be_read_for_a_while_does_not_end_it(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway, name: str
) -> None:
    path: pathlib.Path = getattr(node.where, name)
    async with node.running():
        link = await gateway.session_of("web-1")
        content = emptied(path)
        link.close(reason="again")
        await dialling.passes(300)
        assert node.ended is None
        put_back(path, content)
        await dialling.passes(121)
        assert gateway.open_session("web-1") is not None


async def test_a_certificate_file_that_others_may_read_costs_no_session(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    async with node.running():
        link = await gateway.session_of("web-1")
        node.where.certificate.chmod(0o644)
        await dialling.passes(600)
        assert gateway.open_session("web-1") is link


async def test_a_machine_that_has_left_ends_with_the_command_to_join(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    async with node.running():
        link = await gateway.session_of("web-1")
        node.where.agent.unlink()
        link.close(reason="node-removed")
        await dialling.passes(10)
    assert isinstance(node.ended, failures.NeedsOperator)
    assert "enlist worker join" in str(node.ended)


async def test_a_fault_that_nobody_foresaw_does_not_end_the_agent(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_arguments: object, **_more: object) -> connecting.Opened:
        raise LookupError("by a stranger's answer")

    with monkeypatch.context() as patch:
        patch.setattr(connecting.Connecting, "open_session", broken)
        async with node.running():
            await dialling.passes(300)
            assert node.ended is None
            patch.undo()
            await dialling.passes(200)
            assert gateway.open_session("web-1") is not None


async def test_a_copy_of_a_running_machine_is_refused_and_the_first_stays(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    way: dialling.InMemory,
    tmp_path: pathlib.Path,
    clock: virtual_time.VirtualClock,
) -> None:
    async with node.running():
        first = await gateway.session_of("web-1")
        copied = node.where.__class__(folder=tmp_path / "copy")
        shutil.copytree(node.where.folder, copied.folder)
        copy = dialling.node(copied, connect=way.connect, clock=clock, instance="there")
        async with copy.running():
            await dialling.passes(600)
        assert isinstance(copy.ended, failures.NeedsOperator)
        assert "192.0.2.1" in str(copy.ended)
        assert "192.0.2.2" in str(copy.ended)
        assert gateway.open_session("web-1") is first
    assert gateway.node("web-1").sessions == 1


async def test_the_same_machine_started_again_takes_its_place_from_a_half_open_session(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    way: dialling.InMemory,
    clock: virtual_time.VirtualClock,
) -> None:
    async with node.running():
        await gateway.session_of("web-1")
        way.pairs[-1].blackhole()
    again = dialling.node(node.where, connect=way.connect, clock=clock, instance="later")
    async with again.running():
        await dialling.passes(10)
        assert gateway.node("web-1").sessions == 2
    assert again.ended is None


def test_the_grace_and_a_heartbeat_are_less_than_a_minute() -> None:
    assert 30 + client.GRACE_SECONDS < 60
    assert renewal.ANSWER_SECONDS < client.GRACE_SECONDS
