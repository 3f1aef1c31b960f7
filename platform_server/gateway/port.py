"""The gateway's public port: mutual TLS at which a node shows one certificate, its own.

The name a client asks for begins with its pin's prefix, which finds the certificates it may show;
nobody else's are tried, dates are not judged, and no session is ever resumed. What a handshake
proves is the key; what its node may do is decided afterwards, at hello.

The port's own key lives in memory only: it is read from an anonymous file, since the `ssl` module
reads keys from files alone.
"""

import contextlib
import logging
import os
import pathlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from cryptography import x509

from platform_server.gateway import anchors, rules
from platform_server.trust import port_certificate
from runtime_kit import clock as clock_kit
from runtime_kit import foreign_certificates
from runtime_kit.mux import contexts, tls_server, tls_wire
from runtime_kit.mux import link as links
from wire_protocol import pins

_LOG = logging.getLogger(__name__)
_SHARE: Final = 4  # an address may have that part of the connections that wait

Arrived = Callable[[links.Link, Sequence[anchors.Anchor]], None]


class NoIdentity(RuntimeError):
    """The port was started before it had a key: a fault of ours."""


class Port:
    """Accepts connections and hands on those that have proved a node's certificate."""

    def __init__(
        self,
        *,
        known: anchors.Anchors,
        arrived: Arrived,
        answer: links.Answer,
        given: rules.Rules,
        clock: clock_kit.Clock,
    ) -> None:
        self._anchors = known
        self._arrived = arrived
        self._answer = answer
        self._rules = given
        self._clock = clock
        self._context: ssl.SSLContext | None = None
        self._acceptor: tls_server.Acceptor | None = None
        self.refused = 0
        """Handshakes that came to nothing, whatever it was."""

    def serve_with(self, identity: port_certificate.PortIdentity) -> None:
        """Uses this key and certificate from the next handshake on."""
        descriptor = os.memfd_create("enlist-gateway-key", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(identity.pem_file_content())
            file.flush()
            path = pathlib.Path(f"/proc/self/fd/{descriptor}")
            self._context = contexts.without_anchors(path)

    def start(self, sock: socket.socket) -> None:
        """Begins to accept from a bound, listening socket, which stays the caller's."""
        if self._context is None:
            raise NoIdentity("The gateway has no key yet.")
        if self._acceptor is not None:
            self._acceptor.start(sock)
            return
        self._acceptor = tls_server.accept_tls(
            sock,
            default=self._present_context,
            anchors_for=self._anchors_for,
            opened=self._opened,
            answer=self._answer,
            limits=tls_server.Limits(
                sessions=self._rules.sessions,
                handshakes=self._rules.handshakes,
                handshakes_per_address=self._rules.handshakes_per_address,
                waiting_per_address=tls_server.Limits().waiting // _SHARE,
            ),
            link_limits=rules.BEFORE_OPEN,
            handshake_failed=self._failed,
            clock=self._clock,
        )

    def stop(self) -> None:
        """Accepts no more; links stay."""
        if self._acceptor is not None:
            self._acceptor.stop()

    async def finish(self, *, seconds: float) -> None:
        """Waits until the links that were closed are gone, and aborts the rest."""
        if self._acceptor is not None:
            await self._acceptor.finish(timeout_s=seconds)

    def _present_context(self) -> ssl.SSLContext:
        if self._context is None:
            raise NoIdentity("The gateway has no key yet.")
        return self._context

    def _anchors_for(self, name: str) -> Sequence[bytes]:
        return list(dict.fromkeys(one.der for one in self._anchors.of_server_name(name)))

    def _opened(self, link: links.Link, proof: tls_wire.Proof) -> None:
        proved: Sequence[anchors.Anchor] = ()
        with contextlib.suppress(ValueError), foreign_certificates.translated():
            pin = pins.pin_of_certificate(x509.load_der_x509_certificate(proof.leaf_der))
            proved = self._anchors.of_leaf(proof.leaf_der, pin=pin)
        if not proved:  # an anchor that signs would vouch for others: the leaf itself counts
            self.refused += 1
            link.close(reason="unknown-certificate")
            return
        self._arrived(link, proved)

    def _failed(self, error: Exception, address: str) -> None:
        self.refused += 1
        _LOG.debug("A handshake failed", extra={"address": address, "reason": str(error)})
