"""What passes: two paths, to the engine and back.

The engine learns who called by ``x-enlist-peer``, which is always written here and never taken
from a client; of a client's other headers only the content type goes on, of the engine's only the
content type and ``retry-after`` come back.
"""

import secrets
from collections.abc import Sequence

from platform_server.edge import notes
from platform_server.listener import forwarded
from runtime_kit.http1 import messages, pool
from wire_protocol import problems, product

PATHS = frozenset({product.ENROLL_PATH.encode("ascii"), product.TRUST_PATH.encode("ascii")})
PEER_HEADER = "x-enlist-peer"
_RETRY_AFTER_S = 5
_PASSED_BACK = ("content-type", "retry-after")
_DETAILS = {
    413: ("too-large", "The body is larger than this port takes."),
    503: ("unavailable", "The Platform is busy or restarting; try again in a moment."),
}


class Door:
    """Decides by the head, then forwards."""

    def __init__(
        self,
        engine: pool.Pool,
        *,
        proxies: Sequence[forwarded.Network],
        wait_s: float,
        tally: notes.Tally,
    ) -> None:
        self._engine = engine
        self._proxies = proxies
        self._wait_s = wait_s
        self._tally = tally

    def before_body(self, head: messages.Head) -> messages.Response | None:
        """404 with an empty body for all but the two requests."""
        if head.method == "POST" and head.target in PATHS:
            return None
        return messages.Response(status=404)

    def refusal(self, status: int) -> messages.Response:
        """A problem document where a machine may act on it, else an empty body."""
        self._tally.count(f"refused_{status}")
        if status not in _DETAILS:
            return messages.Response(status=status)
        code, detail = _DETAILS[status]
        retry_after = _RETRY_AFTER_S if status == 503 else None
        problem = problems.Problem(
            code=code, detail=detail, request_id=secrets.token_hex(8), retry_after=retry_after
        )
        headers = {"content-type": problems.MEDIA_TYPE}
        if retry_after is not None:
            headers["retry-after"] = str(retry_after)
        return messages.Response(status=status, headers=headers, body=problem.to_json())

    async def forward(self, request: messages.Request) -> messages.Response:
        """Hand the request to the engine, waiting for one that is away."""
        try:
            caller = forwarded.caller_of(
                request.peer, header=request.headers.get("forwarded"), proxies=self._proxies
            )
        except forwarded.Malformed:
            return self.refusal(400)
        headers = {PEER_HEADER: caller}
        if "content-type" in request.headers:
            headers["content-type"] = request.headers["content-type"]
        try:
            answer = await self._engine.exchange(
                method="POST",
                target=request.target,
                headers=headers,
                body=request.body,
                timeout_s=self._wait_s,
            )
        except pool.Unreachable:
            self._tally.count("engine_unreachable")
            return self.refusal(503)
        passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        return messages.Response(status=answer.status, headers=passed, body=answer.body)
