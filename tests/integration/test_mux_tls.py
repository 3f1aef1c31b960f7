"""Links over real mutual TLS: who gets in, what crosses, and what stays behind."""

import asyncio
import dataclasses
import datetime
import gc
import random
import socket
import ssl
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import uvloop

from runtime_kit import server_trust, tls
from runtime_kit.mux import contexts, frames, link, tls_wire, transports
from tests.support import certificates, link_gate, waits

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


async def test_a_client_gets_in_by_its_own_certificate_and_both_ends_ask(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        ours = await at.dial(node, answer=link_gate.echo)
        assert await ours.ask("hello", b"me", timeout_s=5) == b"hello me"
        theirs, proof = at.opened[0]
        assert proof == tls_wire.Proof(leaf_der=node.der, address="127.0.0.1")
        assert theirs.peer == "127.0.0.1"
        assert await theirs.ask("health", b"?", timeout_s=5) == b"health ?"
        await theirs.ping(timeout_s=5)
        await ours.ping(timeout_s=5)
        await link_gate.closed(ours)


def test_the_same_holds_under_the_platforms_loop(tmp_path: Path) -> None:
    async def run() -> None:
        node = certificates.issue(names=("node",))
        async with link_gate.gate(tmp_path) as at:
            at.known[link_gate.NAME] = [node.der]
            ours = await at.dial(node, answer=link_gate.echo)
            body = random.Random(1).randbytes(60_000)
            assert await ours.ask("a", body, timeout_s=5, max_bytes=10**5) == b"a " + body
            assert await at.opened[0][0].ask("b", body, timeout_s=5, max_bytes=10**5)
            big = random.Random(2).randbytes(3_000_000)

            async def much(_link: link.Link, _method: str, _body: bytes) -> bytes:
                return big

            at.opened[0][0].answer = much  # more than any buffer between the two holds
            assert await ours.ask("log", b"", timeout_s=20, max_bytes=len(big)) == big
            at.opened[0][0].close(reason="engine-replaced", retry_after_s=1.5)
            assert await ours.wait_closed() == link.Ended(
                reason="engine-replaced", retry_after_s=1.5, by_peer=True
            )
            stranger = await at.dial(certificates.issue(names=("node",)))
            with pytest.raises(link.ClientRefused):
                await stranger.ask("hello", b"", timeout_s=5)
            await waits.pace()

    uvloop.run(run())


@dataclasses.dataclass(frozen=True)
class Refused:
    """Who must not get in: what is shown under which name."""

    shown: Callable[[certificates.Issued, certificates.Issued], certificates.Issued | None]
    name: str = link_gate.NAME


REFUSED = {
    "no certificate": Refused(lambda _node, _other: None),
    "another client's certificate under this name": Refused(lambda _node, other: other),
    "its own certificate under another client's name": Refused(
        lambda node, _other: node, name="other.node.enlist.internal"
    ),
    "its own certificate under a name nobody has": Refused(
        lambda node, _other: node, name="nobody.node.enlist.internal"
    ),
    "a certificate that copies all but the key": Refused(
        lambda node, _other: certificates.issue(
            names=("node",), not_before=node.certificate.not_valid_before_utc
        )
    ),
    "a certificate of its own making that it has signed with its key": Refused(
        lambda node, _other: certificates.issue(names=("node",), issuer=node)
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
async def test_nobody_gets_in_with(case: Refused, tmp_path: Path) -> None:
    node, other = certificates.issue(names=("node",)), certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        at.known["other.node.enlist.internal"] = [other.der]
        ours = await at.dial(case.shown(node, other), name=case.name)
        with pytest.raises(link.ClientRefused, match="refused this client's certificate"):
            await ours.ask("hello", b"", timeout_s=5)
        assert ours.ended is not None
        assert ours.ended.client_refused
        assert at.opened == []
        await waits.until(lambda: len(at.failed) == 1)
        await waits.until(lambda: not at.acceptor.handshaking)


async def test_dates_are_not_judged_and_a_second_certificate_is_as_good(tmp_path: Path) -> None:
    key = certificates.issue().key
    old = certificates.issue(
        names=("node",), key=key, not_before=LONG_AGO, not_after=LONG_AGO.replace(year=2002)
    )
    new = certificates.issue(names=("node",), key=key)
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [old.der, new.der]
        for issued in (old, new):
            ours = await at.dial(issued)
            await ours.ask("hello", b"", timeout_s=5)
            assert at.opened[-1][1].leaf_der == issued.der
            await link_gate.closed(ours)


async def test_a_client_whose_certificate_an_authority_made_is_known_by_it_alone(
    tmp_path: Path,
) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="trust key")
    node = certificates.issue(names=("node",), issuer=authority)
    sibling = certificates.issue(names=("node",), issuer=authority)
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        ours = await at.dial(node)
        await ours.ask("hello", b"", timeout_s=5)
        stranger = await at.dial(sibling)
        with pytest.raises(link.ClientRefused):
            await stranger.ask("hello", b"", timeout_s=5)
        await link_gate.closed(ours)


async def test_nothing_of_a_clients_anchors_is_kept_for_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[ssl.SSLContext]] = []
    original = contexts.of_anchors

    def noted(ders: Sequence[bytes]) -> ssl.SSLContext:
        context = original(ders)
        made.append(weakref.ref(context))
        return context

    monkeypatch.setattr(contexts, "of_anchors", noted)
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        ours = await at.dial(node)
        await ours.ask("hello", b"", timeout_s=5)
        gc.collect()
        assert [each() for each in made] == [None]
        # The session goes on without it, also through a change of keys in TLS.
        for _ in range(3):
            await ours.ask("hello", b"x" * 60_000, timeout_s=5, max_bytes=100_000)
        await link_gate.closed(ours)


async def test_a_client_that_is_asked_for_another_group_gets_in_as_well(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path, change=lambda one: one.set_ecdh_curve("secp384r1")) as at:
        at.known[link_gate.NAME] = [node.der]
        ours = await at.dial(node)
        assert await ours.ask("hello", b"", timeout_s=5) == b"hello "
        await link_gate.closed(ours)


async def test_no_ticket_is_given_so_no_session_is_resumed(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        context = at.context(node)

        def twice() -> list[bool]:
            reused, session = [], None
            for _ in range(2):
                with (
                    socket.create_connection(("127.0.0.1", at.port), timeout=5) as raw,
                    context.wrap_socket(
                        raw, server_hostname=link_gate.NAME, session=session
                    ) as secure,
                ):
                    secure.sendall(frames.frame(frames.Kind.PING, payload=b"12345678"))
                    assert secure.recv(100)
                    assert secure.version() == "TLSv1.3"
                    assert secure.session is None or not secure.session.has_ticket
                    reused.append(bool(secure.session_reused))
                    session = secure.session
            return reused

        assert await asyncio.to_thread(twice) == [False, False]


async def test_an_older_tls_is_not_spoken(tmp_path: Path) -> None:
    async with link_gate.gate(tmp_path) as at:
        context = tls.trusting_context(leaf_der=at.server.der)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection(
                "127.0.0.1", at.port, ssl=context, server_hostname=link_gate.NAME
            )
        await waits.until(lambda: len(at.failed) == 1)


async def test_ten_megabytes_cross_and_delay_a_small_question_by_little(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    big = random.Random(2).randbytes(10_000_000)

    async def answer(_link: link.Link, method: str, body: bytes) -> bytes:
        return big if method == "log" else body

    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        ours = await at.dial(node, answer=answer)
        await ours.ask("hello", b"", timeout_s=5)
        theirs, _ = at.opened[0]
        bulk = asyncio.create_task(theirs.ask("log", b"", timeout_s=30, max_bytes=len(big)))
        small = 0
        while not bulk.done():
            # Each is sent behind whatever of the ten megabytes is under way at that moment.
            assert await theirs.ask("beat", b"1", timeout_s=5) == b"1"
            small += 1
        assert await bulk == big
        # By turns of a window at most; behind the whole body there would have been room for one.
        assert small > 10
        await link_gate.closed(ours)


async def test_opened_may_turn_a_client_away_before_its_first_question(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        at.acceptor._opened = lambda made, _proof: made.close(reason="not-now", retry_after_s=7)
        ours = await at.dial(node)
        with pytest.raises(link.Closed, match="not-now"):
            await ours.ask("hello", b"", timeout_s=5)
        assert (await ours.wait_closed()).retry_after_s == 7


async def test_a_client_shows_its_certificate_to_the_one_server_it_knows(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        for known in (at.server, certificates.issue()):
            opening = server_trust.open_mutual(
                f"https://127.0.0.1:{at.port}",
                context=tls.mutual_client_context(at.pem(node), server_certificate_pem=known.pem),
                server_certificate_pem=known.pem,
                server_name=link_gate.NAME,
                environment={},
            )
            if known is not at.server:
                with pytest.raises(server_trust.ServerNotTrusted):
                    await opening
                continue
            opened = await opening
            ours = transports.over_streams(opened.reader, opened.writer, peer="the gate")
            assert await ours.ask("hello", b"", timeout_s=5) == b"hello "
            await link_gate.closed(ours)
        await waits.until(lambda: len(at.failed) == 1)
        assert len(at.opened) == 1


async def test_who_is_in_the_handshake_at_the_end_gets_in_and_the_silent_are_given_up(
    tmp_path: Path,
) -> None:
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        nothing, silent = await asyncio.open_connection("127.0.0.1", at.port)
        await waits.until(lambda: at.acceptor.handshaking == 2)
        at.acceptor.stop()
        await writer.start_tls(at.context(node), server_hostname=link_gate.NAME)
        ours = transports.over_streams(reader, writer, peer="the gate")
        assert await ours.ask("hello", b"me", timeout_s=5) == b"hello me"
        await waits.until(lambda: not at.acceptor.handshaking)
        assert await nothing.read() == b""
        silent.close()
        await link_gate.closed(ours)
