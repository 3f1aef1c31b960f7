"""What both clients hand to httpx, and what they make of its answers and errors.

The one place that knows httpx's arguments and exceptions beside `client.py`. Proxies: only where
the environment names one for an https Platform; never for the socket or for loopback.
"""

import ssl
from typing import Any

import httpx

from enlist import errors, event_stream, exchange, targets
from runtime_kit import dial

LOSSES = (httpx.HTTPError, errors.Temporary)
_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, errors.Temporary)
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)


def asking(request: exchange.Request) -> dict[str, Any]:
    """One request as httpx takes it."""
    return {
        "method": request.method,
        "url": request.target,
        "headers": {**request.headers, "accept-encoding": "identity"},
        "content": request.content,
    }


def listening(tail: event_stream.Tail) -> dict[str, Any]:
    """The request that reads events."""
    return {
        "method": "GET",
        "url": tail.target,
        "headers": tail.headers,
        "timeout": httpx.Timeout(event_stream.SILENCE_SECONDS, connect=5.0),
    }


def client(target: targets.Target) -> dict[str, Any]:
    """The arguments of an httpx client."""
    return {"base_url": target.origin, "timeout": _TIMEOUT, "follow_redirects": False}


def transport(target: targets.Target, *, context: ssl.SSLContext | None) -> dict[str, Any]:
    """The arguments of an httpx transport; retries are ours alone."""
    if target.socket is not None:
        # No TLS on a socket: any context would cost the reading of the system's roots.
        return {"uds": str(target.socket), "verify": _unused_context(), "retries": 0}
    if context is None:
        return {"verify": _unused_context(), "retries": 0, "trust_env": False}
    found: dict[str, Any] = {"verify": context, "retries": 0}
    origin = dial.parse_https_origin(target.origin)
    proxy = dial.find_proxy(origin.host, port=origin.port)
    if proxy is not None:
        headers = {"proxy-authorization": proxy.authorization} if proxy.authorization else None
        host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
        found["proxy"] = httpx.Proxy(f"http://{host}:{proxy.port}", headers=headers)
    return found


async def context(target: targets.Target) -> ssl.SSLContext | None:
    """Proves who answers; None where there is no TLS."""
    if target.is_plain:
        return None
    from enlist import trusting  # noqa: PLC0415 - certificates cost 80 ms that a socket saves

    return await trusting.context_for(target)


def context_now(target: targets.Target) -> ssl.SSLContext | None:
    """The same, waiting."""
    if target.is_plain:
        return None
    from enlist import trusting  # noqa: PLC0415 - as above

    return trusting.context_now(target)


def reply(response: httpx.Response, content: bytes) -> exchange.Reply:
    """The answer as the exchange judges it."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return exchange.Reply(status=response.status_code, headers=headers, content=content)


def lost(error: Exception, *, target: targets.Target) -> exchange.Lost:
    """The sentence about an answer that did not come; raises what waiting cannot mend."""
    if isinstance(error, errors.Temporary):
        return exchange.Lost(sentence=str(error), sent=False)
    sent = not isinstance(error, _NOTHING_SENT)
    reason = _verification(error)
    if reason is not None and not target.pins:
        raise errors.NeedsOperator(
            f"{target.shown} could not be authenticated: {reason}; nothing was sent. For a "
            "Platform with its own certificate: enlist config add-context NAME --url URL --pin PIN"
        ) from error
    if isinstance(error, httpx.TimeoutException):
        return exchange.Lost(sentence=f"{target.shown} did not answer in time.", sent=sent)
    if sent:
        return exchange.Lost(sentence=f"{target.shown} broke the connection off.", sent=True)
    hint = " Is the Platform running (enlist serve)?" if target.socket else ""
    return exchange.Lost(
        sentence=f"No connection to {target.shown}: {_cause(error)}.{hint}", sent=False
    )


def _verification(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or str(error)
        error = error.__cause__ or error.__context__
    return None


def _cause(error: BaseException) -> str:
    deepest: BaseException = error
    while (inner := deepest.__cause__ or deepest.__context__) is not None:
        deepest = inner
    return getattr(deepest, "strerror", None) or str(deepest) or type(deepest).__name__


def _unused_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
