"""Both ends by certificate: the server knows its clients' authority, the client its one server."""

import asyncio
import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from cryptography.x509 import oid

from runtime_kit import failures, server_trust, tls
from runtime_kit.http1 import client, messages, server
from tests.support import certificates

URI = "enlist:platform:p1"
CLIENT = (oid.ExtendedKeyUsageOID.CLIENT_AUTH,)
YESTERDAY = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)


class Health:
    """A server that answers only the client of one URI, and notes what it refused."""

    def __init__(self, pem_file: Path, *, anchors: str) -> None:
        self.port = 0
        self.failed: list[OSError] = []
        self.refused: list[str] = []
        self.context = tls.mutual_server_context(pem_file, anchors_pem=anchors)

    async def answer(self, request: messages.Request) -> messages.Response:
        assert request.tls is not None
        try:
            tls.check_client_certificate(request.tls, uri=URI)
        except tls.ClientNotTrusted as error:
            self.refused.append(str(error))
            return messages.Response(status=403)
        return messages.Response(status=200, body=b"well")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.port = sock.getsockname()[1]
            running = server.Server(
                self.answer,
                tls=lambda: self.context,
                handshake_failed=lambda error, _peer: self.failed.append(error),
            )
            running.start(sock)
            yield
            await running.drain(timeout_s=1.0)


@pytest.fixture
def authority() -> certificates.Issued:
    return certificates.issue(authority=True, names=(), common_name="trust key")


@pytest.fixture
def listening() -> certificates.Issued:
    return certificates.issue(names=("elsewhere.example",))


@pytest.fixture
def health(
    tmp_path: Path, listening: certificates.Issued, authority: certificates.Issued
) -> Health:
    return Health(listening.write(tmp_path / "server.pem"), anchors=authority.pem)


@pytest.fixture
def ask(
    tmp_path: Path, health: Health, listening: certificates.Issued
) -> Callable[[certificates.Issued], "asyncio.Task[messages.Answer]"]:
    """Ask the server as the holder of a certificate."""

    async def exchange(own: certificates.Issued) -> messages.Answer:
        context = tls.mutual_client_context(
            own.write(tmp_path / f"{own.fingerprint[-8:]}.pem"),
            server_certificate_pem=listening.pem,
        )
        opened = await server_trust.open_mutual(
            f"https://127.0.0.1:{health.port}",
            context=context,
            server_certificate_pem=listening.pem,
            environment={},
        )
        async with opened as connection:
            return await client.exchange(
                connection.reader,
                connection.writer,
                method="GET",
                target="/health",
                host=connection.origin.authority,
            )

    return lambda own: asyncio.create_task(exchange(own))


Ask = Callable[[certificates.Issued], "asyncio.Task[messages.Answer]"]


async def test_the_right_client_is_answered_whatever_the_servers_name(
    health: Health, ask: Ask, authority: certificates.Issued
) -> None:
    own = certificates.issue(issuer=authority, names=(), usages=CLIENT, uris=(URI,))
    async with health.serving():
        got = await ask(own)
    assert (got.status, got.body) == (200, b"well")
    assert (health.failed, health.refused) == ([], [])


async def test_a_client_of_an_unknown_authority_fails_in_the_handshake_and_is_reported(
    health: Health, ask: Ask
) -> None:
    stranger = certificates.issue(authority=True, names=(), common_name="stranger")
    async with health.serving():
        for own in (
            certificates.issue(issuer=stranger, names=(), usages=CLIENT, uris=(URI,)),
            certificates.issue(names=(), usages=CLIENT, uris=(URI,)),
        ):
            with pytest.raises(failures.NetworkFailure):
                await ask(own)
    assert [type(error) for error in health.failed] == [ssl.SSLCertVerificationError] * 2


async def test_an_expired_client_fails_in_the_handshake(
    health: Health, ask: Ask, authority: certificates.Issued
) -> None:
    own = certificates.issue(
        issuer=authority,
        names=(),
        usages=CLIENT,
        uris=(URI,),
        not_after=YESTERDAY,
        not_before=YESTERDAY - datetime.timedelta(days=1),
    )
    async with health.serving():
        with pytest.raises(failures.NetworkFailure):
            await ask(own)
    assert isinstance(health.failed[0], ssl.SSLCertVerificationError)


async def test_a_certificate_by_the_authority_that_is_not_the_platforms_is_refused(
    health: Health, ask: Ask, authority: certificates.Issued
) -> None:
    wrong = {
        "another platform": certificates.issue(
            issuer=authority, names=(), usages=CLIENT, uris=("enlist:platform:p2",)
        ),
        "one more name": certificates.issue(
            issuer=authority, names=(), usages=CLIENT, uris=(URI, "enlist:platform:p2")
        ),
        "no name": certificates.issue(issuer=authority, usages=CLIENT),
        "no purpose": certificates.issue(issuer=authority, names=(), uris=(URI,)),
    }
    async with health.serving():
        got = {name: (await ask(own)).status for name, own in wrong.items()}
    assert got == dict.fromkeys(wrong, 403)
    assert len(health.refused) == len(wrong)


async def test_a_certificate_for_servers_fails_in_the_handshake(
    health: Health, ask: Ask, authority: certificates.Issued
) -> None:
    own = certificates.issue(
        issuer=authority, names=(), usages=(oid.ExtendedKeyUsageOID.SERVER_AUTH,), uris=(URI,)
    )
    async with health.serving():
        with pytest.raises(failures.NetworkFailure):
            await ask(own)


async def test_the_client_believes_no_server_but_the_known_one(
    tmp_path: Path, authority: certificates.Issued, ask: Ask, health: Health
) -> None:
    impostor = certificates.issue(names=("127.0.0.1",))
    health.context = tls.mutual_server_context(
        impostor.write(tmp_path / "impostor.pem"), anchors_pem=authority.pem
    )
    own = certificates.issue(issuer=authority, names=(), usages=CLIENT, uris=(URI,))
    async with health.serving():
        with pytest.raises(server_trust.ServerNotTrusted):
            await ask(own)
    assert health.refused == []


async def test_new_anchors_count_from_the_next_connection_on(
    tmp_path: Path, health: Health, ask: Ask, listening: certificates.Issued
) -> None:
    successor = certificates.issue(authority=True, names=(), common_name="successor")
    own = certificates.issue(issuer=successor, names=(), usages=CLIENT, uris=(URI,))
    async with health.serving():
        with pytest.raises(failures.NetworkFailure):
            await ask(own)
        health.context = tls.mutual_server_context(
            listening.write(tmp_path / "again.pem"), anchors_pem=successor.pem
        )
        assert (await ask(own)).status == 200
