"""Before one byte is written, the server has been authenticated: by pin, CA file or roots."""

import asyncio
import contextlib
import dataclasses
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime_kit import dial, failures, pinned_handshake, server_trust, tls
from tests.support import certificates

NO_PROXY: dict[str, str] = {}
LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


@dataclasses.dataclass(slots=True)
class Listening:
    """A TLS server that notes every decrypted byte it is sent."""

    port: int
    heard: bytearray = dataclasses.field(default_factory=bytearray)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def listening(pem_file: Path, *, host: str = "127.0.0.1") -> AsyncIterator[Listening]:
    state = Listening(port=0)

    serving: list[asyncio.Task[None]] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                state.heard += data
                writer.write(b"echo:" + data)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(echo(reader, writer)))

    server = await asyncio.start_server(serve, host, 0, ssl=tls.server_context(pem_file))
    state.port = server.sockets[0].getsockname()[1]
    async with server:
        yield state
        async with asyncio.timeout(5):
            await asyncio.gather(*serving)


async def opened(state: Listening, *, pins: frozenset[str] = frozenset(), ca: str | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return await server_trust.open_authenticated(
        state.url,
        trust=server_trust.ServerTrust(pins=pins, ca_pem=ca),
        environment=NO_PROXY,
    )


async def test_the_pinned_key_is_believed_and_the_connection_carries_bytes(tmp_path: Path) -> None:
    server = certificates.issue()
    async with listening(server.write(tmp_path / "s.pem")) as state:
        async with await opened(state, pins=frozenset({server.pin})) as connection:
            connection.writer.write(b"hello")
            assert await connection.reader.readexactly(10) == b"echo:hello"
        assert connection.leaf.pin == server.pin
        assert connection.leaf.der == server.der


async def test_the_hash_of_the_whole_certificate_is_a_pin_too(tmp_path: Path) -> None:
    server = certificates.issue()
    async with (
        listening(server.write(tmp_path / "s.pem")) as state,
        await opened(state, pins=frozenset({server.fingerprint})) as connection,
    ):
        assert connection.leaf.pin == server.pin


@pytest.mark.parametrize(
    ("not_before", "not_after"),
    [
        (LONG_AGO, LONG_AGO + datetime.timedelta(days=1)),
        (
            datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1),
            datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=9),
        ),
    ],
    ids=["expired long ago", "not valid before tomorrow"],
)
async def test_under_a_pin_names_and_dates_are_not_judged(
    tmp_path: Path, not_before: datetime.datetime, not_after: datetime.datetime
) -> None:
    server = certificates.issue(
        names=("elsewhere.example",), not_before=not_before, not_after=not_after
    )
    async with (
        listening(server.write(tmp_path / "s.pem")) as state,
        await opened(state, pins=frozenset({server.pin})) as connection,
    ):
        connection.writer.write(b"x")
        assert await connection.reader.readexactly(6) == b"echo:x"
        assert connection.leaf.not_after == server.certificate.not_valid_after_utc


async def test_a_leaf_of_a_private_authority_can_be_pinned(tmp_path: Path) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="ca")
    server = certificates.issue(issuer=authority)
    async with (
        listening(server.write(tmp_path / "s.pem", chain=authority.pem)) as state,
        await opened(state, pins=frozenset({server.pin})) as connection,
    ):
        assert connection.leaf.pin == server.pin


async def test_another_key_fails_inside_the_handshake_and_both_pins_are_named(
    tmp_path: Path,
) -> None:
    server, other = certificates.issue(), certificates.issue()
    async with listening(server.write(tmp_path / "s.pem")) as state:
        with pytest.raises(pinned_handshake.PinMismatch) as caught:
            await opened(state, pins=frozenset({other.pin}))
        assert caught.value.got == server.pin
        assert other.pin in str(caught.value)
        assert server.pin in str(caught.value)
        assert "was the Platform's key rotated?" in str(caught.value)
        assert caught.value.kind is failures.Kind.NEEDS_OPERATOR
        assert state.heard == b""


async def test_the_genuine_certificate_appended_to_an_impostors_leaf_counts_for_nothing(
    tmp_path: Path,
) -> None:
    genuine = certificates.issue(authority=True, common_name="genuine")
    impostor = certificates.issue()
    signed_by_name = certificates.issue(issuer=genuine)
    for leaf in (impostor, signed_by_name):
        pem_file = leaf.write(tmp_path / f"{leaf.pin[-8:]}.pem", chain=genuine.pem)
        async with listening(pem_file) as state:
            with pytest.raises(pinned_handshake.PinMismatch):
                await opened(state, pins=frozenset({genuine.pin, genuine.fingerprint}))
            assert state.heard == b""


async def test_a_pin_beats_the_roots_that_would_have_believed_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="ca")
    server = certificates.issue(issuer=authority)
    roots = tmp_path / "roots.pem"
    roots.write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    async with listening(server.write(tmp_path / "s.pem")) as state:
        async with await opened(state) as connection:
            assert connection.leaf.pin == server.pin
        with pytest.raises(pinned_handshake.PinMismatch):
            await opened(state, pins=frozenset({certificates.issue().pin}))


async def test_a_ca_file_believes_its_own_chain_and_nothing_else(tmp_path: Path) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="ca")
    other = certificates.issue(authority=True, names=(), common_name="ca")
    server = certificates.issue(issuer=authority)
    async with listening(server.write(tmp_path / "s.pem")) as state:
        async with await opened(state, ca=authority.pem) as connection:
            assert connection.leaf.pin == server.pin
        with pytest.raises(server_trust.ServerNotTrusted):
            await opened(state, ca=other.pem)
        assert state.heard == b""


async def test_a_ca_file_judges_the_name_and_the_dates(tmp_path: Path) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="ca")
    misnamed = certificates.issue(issuer=authority, names=("elsewhere.example",))
    expired = certificates.issue(
        issuer=authority, not_before=LONG_AGO, not_after=LONG_AGO + datetime.timedelta(days=1)
    )
    for server, reason in ((misnamed, "IP address mismatch"), (expired, "expired")):
        async with listening(server.write(tmp_path / f"{server.pin[-8:]}.pem")) as state:
            with pytest.raises(server_trust.ServerNotTrusted, match=reason):
                await opened(state, ca=authority.pem)
            assert state.heard == b""


async def test_with_pin_and_ca_file_both_must_hold(tmp_path: Path) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="ca")
    other = certificates.issue(authority=True, names=(), common_name="ca")
    server = certificates.issue(issuer=authority)
    pins = frozenset({server.pin})
    async with listening(server.write(tmp_path / "s.pem")) as state:
        async with await opened(state, pins=pins, ca=authority.pem) as connection:
            assert connection.leaf.pin == server.pin
        with pytest.raises(server_trust.ServerNotTrusted):
            await opened(state, pins=pins, ca=other.pem)
        with pytest.raises(pinned_handshake.PinMismatch):
            await opened(state, pins=frozenset({other.pin}), ca=authority.pem)


async def test_without_pin_and_ca_file_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    async with listening(certificates.issue().write(tmp_path / "s.pem")) as state:
        with pytest.raises(server_trust.ServerNotTrusted):
            await opened(state)
        assert state.heard == b""


async def test_an_older_tls_is_not_spoken_under_a_pin(tmp_path: Path) -> None:
    server = certificates.issue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(server.write(tmp_path / "s.pem"))

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with running:
        state = Listening(port=running.sockets[0].getsockname()[1])
        with pytest.raises(pinned_handshake.TlsFailed):
            await opened(state, pins=frozenset({server.pin}))


async def test_a_server_that_says_nothing_is_given_up() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(dial.DialFailed, match=r"within 0\.1 s"),
    ):
        await server_trust.open_authenticated(
            f"https://127.0.0.1:{silent.getsockname()[1]}",
            trust=server_trust.ServerTrust(pins=frozenset({"sha256:" + "0" * 64})),
            timeout_s=0.1,
            environment=NO_PROXY,
        )


async def test_the_unauthenticated_connection_reports_the_leaf_it_met(tmp_path: Path) -> None:
    server = certificates.issue()
    async with listening(server.write(tmp_path / "s.pem")) as state:
        connection = await server_trust.open_unauthenticated(state.url, environment=NO_PROXY)
        async with connection:
            assert connection.leaf.pin == server.pin
