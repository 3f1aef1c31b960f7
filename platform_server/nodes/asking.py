"""Asking an Agent over mutual TLS: the health question, and whatever else its port answers.

The node's certificate is the only anchor and is compared again byte for byte before a request is
written; the Platform shows its own client certificate. A name in the Agent's address is resolved
here, at every call, and each address it gives is judged by `addresses` before it is dialled. For a
configured node only the pin is known: the certificate is learned by a handshake that proves the
pin, then used like any other.

Known limit: the environment's proxies count for Agents too (one rule for every leg).
"""

import asyncio
import dataclasses
import datetime
import ipaddress
import pathlib
import socket
import ssl
from collections.abc import Sequence
from typing import Final, Protocol

from platform_server.nodes import addresses
from runtime_kit import clock as clock_kit
from runtime_kit import dial, failures, pinned_handshake, server_trust, tls
from runtime_kit.http1 import client
from wire_protocol import agent_url, health, ids, pins, strict_json

_OK: Final = 200
_MOST_ADDRESSES: Final = 8


class NoAnswer(Exception):
    """The Agent was not heard: `reason` is one word for the list, the text a sentence."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Identity(Protocol):
    """Where the Platform's client certificate stands."""

    @property
    def pem_file(self) -> pathlib.Path:
        """Private key and certificate chain in one file."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to ask. Without a certificate the pin must do.

    The next certificate is one that was handed in for renewal: it is believed as the present one.
    """

    node_id: ids.NodeId
    url: str
    pin: pins.Pin
    certificate_pem: str | None = dataclasses.field(default=None, repr=False)
    next_certificate_pem: str | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the Agent answered, when, and how its clock differs from ours."""

    health: health.AgentHealth
    at: datetime.datetime
    clock_offset_ms: int
    certificate_sha256: str

    def is_from(self, node_id: ids.NodeId) -> bool:
        """Whether the answer is that node's."""
        return self.health.node_id == node_id and self.health.agent_id == ids.agent_id_of(node_id)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request to an Agent's port, and how long its answer may be."""

    method: str
    path: str
    body: bytes = b""
    most_bytes: int = health.MAX_BYTES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came back from an Agent that proved its key, when it was asked, and how long it took."""

    status: int
    body: bytes
    asked_at: datetime.datetime
    seconds: float
    certificate_sha256: str


_HEALTH: Final = Question(method="GET", path=health.PATH)


class Asker:
    """Asks Agents."""

    def __init__(
        self,
        *,
        identity: Identity,
        clock: clock_kit.Clock,
        networks: Sequence[addresses.Network] = (),
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._networks = tuple(networks)

    async def ask(self, target: Target, *, timeout_s: float, trusted: bool = False) -> Heard:
        """Asks for its health once, within the time for everything together. Raises `NoAnswer`.

        `trusted` is for addresses that the operator configured: no address rule applies.
        """
        answered = await self.exchange(
            target, question=_HEALTH, timeout_s=timeout_s, trusted=trusted
        )
        if answered.status != _OK:
            raise NoAnswer("bad-answer", f"{target.url} answered with status {answered.status}")
        try:
            heard = health.parse(answered.body)
        except strict_json.Malformed as fault:
            raise NoAnswer("bad-answer", f"{target.url} answered wrongly: {fault}") from fault
        midpoint = answered.asked_at + datetime.timedelta(seconds=answered.seconds / 2)
        return Heard(
            health=heard,
            at=answered.asked_at + datetime.timedelta(seconds=answered.seconds),
            clock_offset_ms=round((heard.now - midpoint).total_seconds() * 1000),
            certificate_sha256=answered.certificate_sha256,
        )

    async def exchange(
        self, target: Target, *, question: Question, timeout_s: float, trusted: bool = False
    ) -> Answered:
        """Sends one request and gives the answer, whatever its status. Raises `NoAnswer`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask(
                    target, question=question, timeout_s=timeout_s, trusted=trusted
                )
        except TimeoutError:
            raise NoAnswer(
                "timeout", f"{target.url} did not answer within {timeout_s:g} s"
            ) from None
        except failures.NetworkFailure as fault:
            raise NoAnswer(_reason_of(fault), str(fault)) from fault
        except addresses.Forbidden as fault:
            raise NoAnswer("address-forbidden", str(fault)) from fault
        except (ssl.SSLError, OSError) as fault:
            raise NoAnswer("no-connection", f"{target.url}: {fault}") from fault

    async def _ask(
        self, target: Target, *, question: Question, timeout_s: float, trusted: bool
    ) -> Answered:
        url = agent_url.parse(target.url)
        last: Exception | None = None
        found = await self._addresses(url, trusted=trusted)
        share_s = timeout_s / max(1, len(found))  # a dead first address leaves time for the next
        for address in found:
            at_address = agent_url.AgentUrl(host=address, port=url.port)
            try:
                return await self._ask_at(
                    target, question=question, url=str(at_address), timeout_s=share_s
                )
            except dial.DialFailed as fault:
                last = fault
        raise last or NoAnswer("no-address", f"The name {url.host} has no address")

    async def _addresses(self, url: agent_url.AgentUrl, *, trusted: bool) -> Sequence[str]:
        """What to dial, each judged. A literal loopback address was allowed when it was given."""
        if url.ip is not None:
            if not trusted:
                addresses.judge(url.ip, loopback_allowed=True, networks=self._networks)
            return [url.host]
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(
                url.host, url.port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as fault:
            raise NoAnswer(
                "no-address", f"The name {url.host} could not be resolved: {fault}"
            ) from fault
        found = list(dict.fromkeys(str(info[4][0]) for info in infos))[:_MOST_ADDRESSES]
        if not trusted:
            for address in found:
                addresses.judge(
                    ipaddress.ip_address(address),
                    loopback_allowed=addresses.is_loopback_name(url.host),
                    networks=self._networks,
                )
        return found

    async def _ask_at(
        self, target: Target, *, question: Question, url: str, timeout_s: float
    ) -> Answered:
        certificate_pem = target.certificate_pem or await self._learn(
            target, url=url, timeout_s=timeout_s
        )
        try:
            return await self._ask_by(
                certificate_pem, question=question, url=url, timeout_s=timeout_s
            )
        except server_trust.ServerNotTrusted:
            if target.next_certificate_pem is None:
                raise
            return await self._ask_by(
                target.next_certificate_pem, question=question, url=url, timeout_s=timeout_s
            )

    async def _ask_by(
        self, certificate_pem: str, *, question: Question, url: str, timeout_s: float
    ) -> Answered:
        context = tls.mutual_client_context(
            self._identity.pem_file, server_certificate_pem=certificate_pem
        )
        connection = await server_trust.open_mutual(
            url, context=context, server_certificate_pem=certificate_pem, timeout_s=timeout_s
        )
        async with connection:
            before = self._clock.now()
            started = self._clock.monotonic()
            answer = await client.exchange(
                connection.reader,
                connection.writer,
                method=question.method,
                target=question.path,
                host=connection.origin.authority,
                body=question.body,
                max_body_bytes=question.most_bytes,
                timeout_s=timeout_s,
            )
            elapsed = self._clock.monotonic() - started
        return Answered(
            status=answer.status,
            body=answer.body,
            asked_at=before,
            seconds=elapsed,
            certificate_sha256=connection.leaf.fingerprint,
        )

    async def _learn(self, target: Target, *, url: str, timeout_s: float) -> str:
        origin = dial.parse_https_origin(url)
        with await dial.dial(origin.host, port=origin.port, timeout_s=timeout_s) as sock:
            leaf = await pinned_handshake.authenticate_pinned(
                sock, pins=frozenset({target.pin}), server=origin.authority, timeout_s=timeout_s
            )
        return ssl.DER_cert_to_PEM_cert(leaf.der)


def _reason_of(fault: failures.NetworkFailure) -> str:
    if isinstance(fault, client.ClientRefused):
        return "refuses-platform"
    if isinstance(fault, server_trust.ServerNotTrusted | pinned_handshake.PinMismatch):
        return "another-key"
    if isinstance(fault, client.NoAnswer | client.AnswerTooLong):
        return "no-answer"
    if isinstance(fault, pinned_handshake.TlsFailed):
        return "no-tls"
    return "no-connection"
