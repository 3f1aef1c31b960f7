"""The Agent's routes on its own port, in listen mode, for the Platform and nobody else.

The handshake has proved that the client's certificate is by a trust key; here it is made sure that
it is the Platform's own kind, still within its dates and by a key that is valid now, since a
connection may have been open for longer than a key.
"""

import logging

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from runtime_kit import clock as clock_kit
from runtime_kit import foreign_certificates, tls
from runtime_kit.http1 import messages
from runtime_kit.mux import link as links
from wire_protocol import health, heartbeats, orders
from worker_agent.app import anchors, logs
from worker_agent.app import health as health_kit
from worker_agent.session import outside

LOGGER = logging.getLogger(__name__)
_JSON = {"content-type": "application/json"}


class Door:
    """The Agent's routes, for the Platform and nobody else."""

    def __init__(
        self,
        answers: health_kit.Answers,
        *,
        work: outside.Work,
        trusted: anchors.Anchors,
        clock: clock_kit.Clock,
    ) -> None:
        self._answers = answers
        self._work = work
        self._trusted = trusted
        self._clock = clock

    async def answer(self, request: messages.Request) -> messages.Response:
        """The answer to any request: 403 to a stranger, 404 to everything but the questions."""
        if not self._is_platform(request):
            return messages.Response(status=403)
        asked = (request.method, request.target)
        if asked == ("GET", health.PATH.encode()):
            return messages.Response(status=200, headers=_JSON, body=self._answers.health())
        if asked == ("GET", heartbeats.PATH.encode()):
            body = self._answers.heartbeat().to_bytes()
            return messages.Response(status=200, headers=_JSON, body=body)
        if asked == ("POST", orders.PATH.encode()):
            return await self._order(request.body)
        return messages.Response(status=404)

    async def _order(self, body: bytes) -> messages.Response:
        """200 with the result if it is known, or empty; 409 for an order that is not taken."""
        try:
            said = await self._work.take(body)
        except links.Refusal as refusal:
            told = orders.write_refusal(refusal.code, refusal.detail)
            return messages.Response(status=409, headers=_JSON, body=told)
        return messages.Response(status=200, headers=_JSON, body=said)

    def _is_platform(self, request: messages.Request) -> bool:
        if request.tls is None:
            return False
        try:
            tls.check_client_certificate(request.tls, uri=self._trusted.client_uri())
            with foreign_certificates.translated():
                client = x509.load_der_x509_certificate(tls.peer_leaf_der(request.tls))
                since, until = client.not_valid_before_utc, client.not_valid_after_utc
        except (tls.ClientNotTrusted, ValueError) as error:
            logs.warning(LOGGER, "A client was refused", peer=request.peer, reason=str(error))
            return False
        if not since <= self._clock.now() <= until:
            return False
        return request.tls.context is self._trusted.context() or self._is_still_issued(client)

    def _is_still_issued(self, client: x509.Certificate) -> bool:
        """Whether a key valid now issued it: the connection is older than the present keys."""
        for pem in self._trusted.certificates():
            try:
                with foreign_certificates.translated():
                    client.verify_directly_issued_by(x509.load_pem_x509_certificate(pem.encode()))
            except (ValueError, InvalidSignature):
                continue
            return True
        return False
