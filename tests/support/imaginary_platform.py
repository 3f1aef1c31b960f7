"""A small Platform that behaves: real TLS on loopback, real signatures, and faults on order.

It keeps what the rules say of enrolling (a token belongs to one node, is spent once, and answers
the same key again) and of trust statements, and it obeys a script of faults, one a request. The
real Platform is tested elsewhere; this one does what a real one never would on purpose.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import email.utils
import json
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509 import oid

from runtime_kit.http1 import limits, messages, server
from tests.support import certificates
from wire_protocol import (
    agent_url,
    enrollment_token,
    health,
    ids,
    join_token,
    pins,
    problems,
    product,
    signing,
    statements,
)

DAY = datetime.timedelta(days=1)
PLATFORM_ID = ids.PlatformId("plt_imaginary")
JSON = {"content-type": "application/json"}


class Cut(Exception):
    """Close the connection without an answer."""


Fault = Callable[[], Awaitable[messages.Response]]


def answer_with(status: int, body: bytes = b"", **headers: str) -> Fault:
    """A fault that answers with just that."""

    async def fault() -> messages.Response:
        return messages.Response(status=status, headers=headers, body=body)

    return fault


async def cut() -> messages.Response:
    """A fault that closes the connection after the request has arrived."""
    raise Cut


async def never() -> messages.Response:
    """A fault that does not answer."""
    await asyncio.Event().wait()
    raise AssertionError


class TrustKey:
    """A trust key with both halves and its self-signed certificate."""

    def __init__(self, *, not_before: datetime.datetime, not_after: datetime.datetime) -> None:
        self.private = ed25519.Ed25519PrivateKey.generate()
        raw = signing.public_bytes(self.private.public_key())
        key_id = signing.key_id_of(raw)
        self.name = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, f"trust {key_id}")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    **dict.fromkeys(
                        (
                            "digital_signature",
                            "content_commitment",
                            "key_encipherment",
                            "data_encipherment",
                            "key_agreement",
                            "crl_sign",
                            "encipher_only",
                            "decipher_only",
                        ),
                        False,
                    ),
                    key_cert_sign=True,
                ),
                critical=True,
            )
            .sign(self.private, None)
        )
        self.public = statements.TrustKey(
            key_id=key_id,
            public_key=raw,
            not_before=not_before,
            not_after=not_after,
            certificate_pem=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        )


@dataclasses.dataclass(slots=True, kw_only=True)
class Enrollment:
    """One issued token and what became of it."""

    token: enrollment_token.EnrollmentToken
    node_id: ids.NodeId
    pin: pins.Pin | None = None
    generation: int = 1
    certificate: x509.Certificate | None = None


class ImaginaryPlatform:
    """The stand-in; a test reads `asked` and writes `faults`."""

    def __init__(self, folder: pathlib.Path, *, now: datetime.datetime | None = None) -> None:
        moment = (now or datetime.datetime.now(datetime.UTC)).replace(microsecond=0)
        self.folder = folder
        self.now = moment
        self.port = 0
        self.keys = [TrustKey(not_before=moment - DAY, not_after=moment + 365 * DAY)]
        self.signers = list(self.keys)
        self.serial = 1
        self.chain: list[statements.SignedStatement] = []
        self.tls_identity = certificates.issue()
        self.tls_chain = ""
        self.stated_url: str | None = None
        self.gateway_urls: tuple[str, ...] = ()
        self.gateway_pins: tuple[pins.Pin, ...] = ()
        self.enrollments: dict[str, Enrollment] = {}
        self.faults: list[Fault] = []
        self.asked: list[tuple[str, bytes]] = []
        self.dial_port: int | None = None
        self.loses_answers = 0
        self._server: server.Server | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    def context(self) -> ssl.SSLContext:
        """Its TLS context, made from its present key."""
        path = self.tls_identity.write(self.folder / "tls.pem", chain=self.tls_chain)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        context.load_cert_chain(path)
        return context

    def issue(self, node_id: str, *, expires_in: datetime.timedelta = DAY) -> str:
        """A join token for the node."""
        enrollment = Enrollment(token=enrollment_token.new(), node_id=ids.NodeId(node_id))
        self.enrollments[enrollment.token.enrollment_id] = enrollment
        return join_token.encode(
            join_token.JoinToken(
                url=self.url,
                node_id=enrollment.node_id,
                token=enrollment.token,
                pins=(pins.Pin(self.tls_identity.pin),),
                trust_key_ids=tuple(key.public.key_id for key in self.keys),
                expires_at=self.now + expires_in,
            )
        )

    def statement(self) -> statements.SignedStatement:
        """The present statement, signed."""
        content = statements.Statement(
            platform_id=PLATFORM_ID,
            epoch=1,
            serial=self.serial,
            issued_at=self.now,
            trust_keys=tuple(key.public for key in self.keys),
            enrollment_pins=(pins.Pin(self.tls_identity.pin),),
            gateway_pins=self.gateway_pins,
            enrollment_url=self.stated_url or self.url,
            gateway_urls=self.gateway_urls,
        ).to_bytes()
        return statements.SignedStatement(
            content=content,
            signatures=tuple(
                statements.Signature(
                    key_id=key.public.key_id,
                    signature=signing.sign(key.private, content, context=signing.TRUST_CONTEXT),
                )
                for key in self.signers
            ),
        )

    def publish(self, *keys: TrustKey, signed_by: tuple[TrustKey, ...] | None = None) -> None:
        """A new statement with these keys, signed by those that were there before."""
        self.chain = [*self.chain, self.statement()][-16:]
        self.signers = list(signed_by or (*self.keys, *keys))
        self.keys = list(keys)
        self.serial += 1

    def new_key(self, *, days: int = 365) -> TrustKey:
        """A fresh key, valid from yesterday on."""
        return TrustKey(not_before=self.now - DAY, not_after=self.now + days * DAY)

    def client_certificate(
        self,
        *,
        key: TrustKey | None = None,
        uri: str = f"enlist:platform:{PLATFORM_ID}",
        usage: x509.ObjectIdentifier = oid.ExtendedKeyUsageOID.CLIENT_AUTH,
        not_after: datetime.datetime | None = None,
    ) -> pathlib.Path:
        """The engine's client certificate, as a file with its key."""
        issuer = key or self.keys[0]
        own = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, "engine")]))
            .issuer_name(issuer.name)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - DAY)
            .not_valid_after(not_after or self.now + 7 * DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False
            )
            .sign(issuer.private, None)
        )
        issued = certificates.Issued(key=own, certificate=certificate)
        return issued.write(self.folder / f"client-{certificate.serial_number:x}.pem")

    async def ask_agent(
        self,
        port: int,
        *,
        client: pathlib.Path | None,
        target: str = health.PATH,
        method: str = "GET",
    ) -> tuple[int, bytes]:
        """Asks an Agent over mutual TLS; returns status and body. Judges nothing of the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if client is not None:
            context.load_cert_chain(client)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            async with asyncio.timeout(5):
                writer.write(
                    f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()
                )
                await writer.drain()
                raw = await reader.read(65_536)
        finally:
            writer.transport.abort()
        if not raw:
            raise ConnectionResetError("The Agent closed the connection without an answer.")
        head, _, body = raw.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body

    async def ask_agent_often(self, port: int, *, client: pathlib.Path, times: int) -> None:
        """Asks the health question again and again over connections that are kept."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(client)
        question = f"GET {health.PATH} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        for _ in range(times // 100):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            for _ in range(100):
                writer.write(question)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), head
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
            writer.transport.abort()

    async def answer(self, request: messages.Request) -> messages.Response:
        """The answer to one request, or the next fault."""
        self.asked.append((request.target.decode(), request.body))
        if self.faults:
            try:
                return await self.faults.pop(0)()
            except Cut:
                return self._cut()
        answered = await self._route(request)
        if self.loses_answers:
            self.loses_answers -= 1
            return self._cut()
        return answered

    def _cut(self) -> messages.Response:
        assert self._server is not None
        for connection in list(self._server._open):
            connection.abort()
        return messages.Response(status=500)  # nobody reads it any more

    async def _route(self, request: messages.Request) -> messages.Response:
        if request.method == "POST" and request.target == product.ENROLL_PATH.encode():
            return await self._enroll(json.loads(request.body))
        if request.method == "POST" and request.target == product.TRUST_PATH.encode():
            return self._json(200, self.trust_document())
        return messages.Response(status=404)

    async def _enroll(self, body: dict[str, Any]) -> messages.Response:
        token = enrollment_token.parse(body["token"])
        found = self.enrollments.get(token.enrollment_id)
        certificate = x509.load_pem_x509_certificate(body["certificate_pem"].encode())
        pin = pins.pin_of_certificate(certificate)
        if (
            found is None
            or found.token != token
            or found.node_id != body["node_id"]
            or found.pin not in (None, pin)
        ):
            return self._problem("enrollment-refused", "Enrollment refused.")
        first = found.pin is None
        found.pin, found.certificate = pin, certificate
        document: dict[str, Any] = {
            **self.trust_document(),
            "node_id": found.node_id,
            "agent_id": ids.agent_id_of(found.node_id),
            "generation": found.generation,
            "gateway_url": self.gateway_urls[0] if self.gateway_urls else None,
        }
        if "url" in body:
            document |= await self._dial(agent_url.parse(body["url"]), pin=pin)
        return self._json(201 if first else 200, document)

    async def _dial(self, url: agent_url.AgentUrl, *, pin: pins.Pin) -> dict[str, Any]:
        try:
            status, body = await self.ask_agent(
                self.dial_port or url.port, client=self.client_certificate()
            )
            said = health.parse(body)
        except (OSError, TimeoutError, ValueError) as error:
            return {"reachable": False, "reachable_reason": str(error) or type(error).__name__}
        assert pin.startswith("sha256:")
        return {"reachable": status == 200 and bool(said.node_id)}

    def trust_document(self) -> dict[str, Any]:
        """What the trust question is answered with."""
        return {
            **self.statement().to_wire(),
            "chain": [signed.to_wire() for signed in self.chain],
            "trust_keys": [key.public.to_wire() for key in self.keys],
            "pins": [self.tls_identity.pin],
            "gateway_pins": list(self.gateway_pins),
        }

    def _json(self, status: int, document: dict[str, Any]) -> messages.Response:
        return messages.Response(
            status=status,
            headers={**JSON, "date": email.utils.format_datetime(self.now, usegmt=True)},
            body=json.dumps(document).encode(),
        )

    def _problem(self, code: str, detail: str) -> messages.Response:
        problem = problems.Problem(code=code, detail=detail, request_id="req_1")
        return messages.Response(
            status=problem.meaning.status,
            headers={
                "content-type": problems.MEDIA_TYPE,
                "date": email.utils.format_datetime(self.now, usegmt=True),
            },
            body=problem.to_json(),
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["ImaginaryPlatform"]:
        """Listens on a free port of loopback inside the block."""
        with socket.create_server(("127.0.0.1", self.port)) as listening:
            self.port = listening.getsockname()[1]
            self._server = server.Server(
                self.answer, limits=limits.Limits(work_s=60), tls=self.context
            )
            self._server.start(listening)
            try:
                yield self
            finally:
                await self._server.drain(timeout_s=0.5)


@contextlib.asynccontextmanager
async def running(
    folder: pathlib.Path, *, now: datetime.datetime | None = None
) -> AsyncIterator[ImaginaryPlatform]:
    """An imaginary Platform for the length of an `async with`."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - before anything runs
    async with ImaginaryPlatform(folder, now=now).serving() as platform:
        yield platform
