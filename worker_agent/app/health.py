"""Answers the health question, and nothing else, to the Platform and nobody else.

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
from wire_protocol import health, product
from worker_agent.app import anchors, logs
from worker_agent.settings import agent_file

LOGGER = logging.getLogger(__name__)


class HealthDoor:
    """The Agent's one route."""

    def __init__(
        self,
        agent: agent_file.AgentFile,
        *,
        trusted: anchors.Anchors,
        clock: clock_kit.Clock,
    ) -> None:
        self._agent = agent
        self._trusted = trusted
        self._clock = clock

    async def answer(self, request: messages.Request) -> messages.Response:
        """The answer to any request: 403 to a stranger, 404 to everything but the question."""
        if not self._is_platform(request):
            return messages.Response(status=403)
        if request.method != "GET" or request.target != health.PATH.encode():
            return messages.Response(status=404)
        said = health.AgentHealth(
            node_id=self._agent.node_id,
            agent_id=self._agent.agent_id,
            version=product.VERSION,
            now=self._clock.now(),
            trust_keys=self._trusted.key_ids(),
        )
        return messages.Response(
            status=200, headers={"content-type": "application/json"}, body=said.to_bytes()
        )

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
