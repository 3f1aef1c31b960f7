"""Opens a link to the gateway: proved by its pin, and this machine by its own certificate.

The pin is compared in a handshake of its own, in which this machine shows nothing. The certificate
found there is kept in memory, so that every later connection is one handshake: it trusts that very
certificate and nothing else. Names are resolved anew each time, and the proxies of the environment
honoured, as on every leg (`runtime_kit.dial`). The name asked for begins with this machine's pin,
by which the gateway finds its certificate at once among all nodes'.
"""

import ipaddress
import os
import ssl
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from runtime_kit import dial, pinned_handshake, server_trust, tls
from runtime_kit.mux import link as links
from runtime_kit.mux import transports
from wire_protocol import pins
from worker_agent.identity import replacing

NAMELESS = "node.enlist.internal"  # what is asked for where the gateway has no name
DIAL_SECONDS = 6.0  # three tries of TCP; of several addresses a dead one delays by that
HANDSHAKE_SECONDS = 10.0
_SHOWN_PIN = 32  # hex digits: 128 bits find one node among all
_LONGEST_HOST = 200  # with the pin before it, a server name stays below 253 characters
_MOST_LEAVES = 64


class Gateway:
    """The way to the gateway, over the network; remembers the certificates that were proved."""

    def __init__(
        self, *, clock: clock_kit.Clock, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._clock = clock
        self._environment = environment
        self._leaves: dict[str, pinned_handshake.Leaf] = {}

    async def connect(
        self,
        url: str,
        *,
        pins: frozenset[pins.Pin],
        proof: replacing.Candidate,
        answer: links.Answer,
    ) -> links.Link:
        """The link, on which nothing was said yet.

        That the gateway does not know this machine's certificate shows at the first question
        (`links.ClientRefused`). Raises as `server_trust.open_mutual` and `authenticate_pinned`.
        """
        origin = dial.parse_https_origin(url)
        leaf = self._leaves.get(url)
        if leaf is not None and leaf.matches(frozenset(pins)):
            try:
                return await self._open(url, origin=origin, leaf=leaf, proof=proof, answer=answer)
            except server_trust.ServerNotTrusted:
                del self._leaves[url]  # another certificate, which may be another of that key
        leaf = await self._prove(origin, known=frozenset(pins))
        try:
            link = await self._open(url, origin=origin, leaf=leaf, proof=proof, answer=answer)
        except server_trust.ServerNotTrusted as error:
            raise pinned_handshake.TlsFailed(
                f"{origin.authority} answered with two different certificates in a row"
            ) from error
        if len(self._leaves) >= _MOST_LEAVES:
            self._leaves.clear()
        self._leaves[url] = leaf
        return link

    async def _prove(self, origin: dial.Origin, *, known: frozenset[str]) -> pinned_handshake.Leaf:
        sock = await dial.dial(
            origin.host, port=origin.port, timeout_s=DIAL_SECONDS, environment=self._environment
        )
        with sock:
            return await pinned_handshake.authenticate_pinned(
                sock,
                pins=known,
                server=origin.authority,
                host=origin.host,
                timeout_s=HANDSHAKE_SECONDS,
            )

    async def _open(
        self,
        url: str,
        *,
        origin: dial.Origin,
        leaf: pinned_handshake.Leaf,
        proof: replacing.Candidate,
        answer: links.Answer,
    ) -> links.Link:
        known = ssl.DER_cert_to_PEM_cert(leaf.der)
        try:
            context = tls.mutual_client_context(
                proof.certificate, server_certificate_pem=known, key=proof.key
            )
        except OSError as error:
            raise CannotProve(
                f"{proof.certificate} cannot be used with {proof.key}: {error}"
            ) from error
        connection = await server_trust.open_mutual(
            url,
            context=context,
            server_certificate_pem=known,
            server_name=server_name(proof.pin, host=origin.host),
            timeout_s=DIAL_SECONDS + HANDSHAKE_SECONDS,
            environment=self._environment,
        )
        return transports.over_streams(
            connection.reader,
            connection.writer,
            peer=origin.authority,
            answer=answer,
            clock=self._clock,
        )


class CannotProve(pinned_handshake.TlsFailed):
    """This machine's own certificate or key cannot be read just now; the next try reads anew."""


def server_name(pin: pins.Pin, *, host: str) -> str:
    """The name to ask the gateway for, by which it finds this node's certificate at once."""
    shown = pin.removeprefix("sha256:")[:_SHOWN_PIN]
    return f"{shown}.{host.lower() if _is_name(host) else NAMELESS}"


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= _LONGEST_HOST and host.isascii() and "_" not in host
    return False
