"""Answers the health question during a join, before the machine holds any trust key.

The Platform dials a listening machine as part of the join, to say whether it can be reached. No
client certificate can be judged yet, so none is asked for, and the answer says nothing but which
node stands here, in which version. It closes with the join; what answers later is the Agent.
"""

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

from runtime_kit import clock as clock_kit
from runtime_kit import tls
from runtime_kit.http1 import limits, messages, server
from wire_protocol import health, ids, product
from worker_agent.settings import paths

_LIMITS = limits.Limits(sockets=64, in_work=8, body_bytes=0, head_bytes=8192)
_DRAIN_SECONDS = 2.0


@contextlib.asynccontextmanager
async def answering(
    sockets: Sequence[socket.socket],
    *,
    node_id: ids.NodeId,
    where: paths.Paths,
    clock: clock_kit.Clock,
) -> AsyncIterator[None]:
    """Serves on the sockets inside the block and closes them at its end."""
    context = tls.server_context(where.certificate, key=where.key)

    async def answer(request: messages.Request) -> messages.Response:
        if request.method != "GET" or request.target != health.PATH.encode():
            return messages.Response(status=404)
        said = health.AgentHealth(
            node_id=node_id,
            agent_id=ids.agent_id_of(node_id),
            version=product.VERSION,
            now=clock.now(),
            trust_keys=(),
        )
        return messages.Response(
            status=200, headers={"content-type": "application/json"}, body=said.to_bytes()
        )

    serving = server.Server(answer, limits=_LIMITS, tls=lambda: context)
    try:
        for listener in sockets:
            serving.start(listener)
        yield
    finally:
        await serving.drain(timeout_s=_DRAIN_SECONDS)
        for listener in sockets:
            listener.close()
