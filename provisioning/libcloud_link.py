"""What stands between apache-libcloud and the network, for every driver that speaks through it.

Each call is announced before it is made, sent exactly once (neither libcloud's retries, which an
environment variable can turn on, nor redirects), bounded in time and size, and made on one thread
of the link's own, since a libcloud connection keeps its last answer in itself. What libcloud makes
of a refusal is not read: status, headers and body are, by the driver's own table.

A library that trips over an answer has sent its request all the same: that is unknown, not failed.

Known limit: calls of one link run one after the other; a call that was given up runs on in its
thread until its own time limit.
"""

import asyncio
import concurrent.futures
import dataclasses
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final

import requests
from libcloud import http as libcloud_http

from provisioning import answers, contract, outcomes, providers
from runtime_kit import clock as clock_kit

_CHUNK_BYTES: Final = 65_536

Read = Callable[[Any], tuple[str, str]]
"""Finds code and message in a refusal's JSON; ("", "") where it is not the provider's."""
Judge = Callable[[answers.Refusal], Mapping[str, answers.Verdict]]
"""The table for this refusal; a driver whose codes say too little reads the message here."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a call gave: libcloud's own result, and the body and headers of its last answer."""

    result: Any
    body: Any
    headers: Mapping[str, str]


class Refused(Exception):
    """An answer that was no success, as it came."""

    def __init__(self, *, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.content = content


class _TooLong(Exception):
    pass


class _Exchange:
    """What the thread knows of the call that it is making."""

    def __init__(self, limits: providers.TimeLimits) -> None:
        self.limits = limits
        self.seconds = limits.read
        self.is_sent = False
        self.headers: Mapping[str, str] = {}
        self.content = b""

    def begin(self, seconds: float) -> None:
        self.seconds, self.is_sent, self.headers, self.content = seconds, False, {}, b""


class Once:
    """Stands where libcloud puts what repeats a failed request, and repeats nothing."""

    def __init__(self, **_: object) -> None:
        pass

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself."""
        return function


class _Transport(libcloud_http.LibcloudConnection):  # type: ignore[misc]
    """libcloud's HTTP connection with our limits; made by `Link`, which sets `exchange`."""

    exchange: _Exchange

    def __init__(self, host: str, port: int, **kwargs: Any) -> None:
        super().__init__(host=host, port=port, **kwargs)
        self.session.trust_env = False  # no proxy and no .netrc of the environment sees the token

    def request(  # noqa: PLR0917 - libcloud's own signature
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        raw: bool = False,  # noqa: ARG002, FBT001, FBT002
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002
        hooks: Any = None,  # noqa: ARG002
    ) -> None:
        self.exchange.is_sent = True
        response = self.session.request(
            method=method.lower(),
            url=urllib.parse.urljoin(self.host, url),
            data=body,
            headers=self._normalize_headers(headers=headers),
            allow_redirects=False,
            stream=True,
            verify=self.verification,
            timeout=(self.exchange.limits.connect, self.exchange.seconds),
        )
        content = bytearray()
        try:
            for chunk in response.iter_content(_CHUNK_BYTES):
                content += chunk
                if len(content) > answers.MOST_BYTES:
                    raise _TooLong(f"longer than {answers.MOST_BYTES} bytes")
        finally:
            response.close()
        response._content = bytes(content)  # noqa: SLF001 - what requests itself sets after reading
        response._content_consumed = True  # noqa: SLF001
        self.exchange.headers = {name.lower(): value for name, value in response.headers.items()}
        self.exchange.content = bytes(content)
        self.response = response
        if not 200 <= response.status_code < 300:
            raise Refused(
                status=response.status_code,
                headers=self.exchange.headers,
                content=self.exchange.content,
            )


class Link:
    """One libcloud driver's way to its provider. Close it when done."""

    def __init__(
        self,
        *,
        observer: contract.Observer,
        clock: clock_kit.Clock,
        read: Read,
        judge: Judge,
        limits: providers.TimeLimits,
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._read = read
        self._judge = judge
        self._limits = limits
        self._exchange = _Exchange(limits)
        self._thread = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="libcloud"
        )
        self.budget: answers.Budget | None = None
        self.transport: type[Any] = type("Transport", (_Transport,), {"exchange": self._exchange})

    def guarded(self, connection: Any, **attributes: Any) -> Any:
        """The class of libcloud's connections, made to go through this link."""
        return type(
            f"Guarded{connection.__name__}",
            (connection,),
            {"conn_class": self.transport, "retryCls": Once, **attributes},
        )

    async def run(
        self, call: contract.ApiCall, function: Callable[[], Any], *, hide: tuple[str, ...] = ()
    ) -> Told:
        """Makes this one call in the link's thread. `hide`: texts that no sentence may repeat.

        Raises:
            outcomes.Fault: anything but a success with a readable body.
        """
        await self._observer(call)
        seconds = self._limits.create if call.changes else self._limits.read
        waiting = self._thread.submit(self._made, function, seconds)
        try:
            async with asyncio.timeout(seconds + self._limits.connect):
                told = await asyncio.wrap_future(waiting)
        except TimeoutError:
            raise answers.unanswered(call.name, "no answer in time") from None
        except _Failed as failed:
            raise self._fault(call, failed, hide=hide) from None
        self.budget = answers.budget_of(told.headers) or self.budget
        return told

    async def close(self) -> None:
        """Ends its thread when what it is doing has come to an end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _made(self, function: Callable[[], Any], seconds: float) -> Told:
        self._exchange.begin(seconds)
        try:
            result = function()
            body = answers.parsed(self._exchange.content)
        except Exception as cause:
            if self._exchange.is_sent:
                raise _Failed(cause) from cause
            raise  # before anything was sent: a fault of ours, not of the provider
        return Told(result=result, body=body, headers=self._exchange.headers)

    def _fault(
        self, call: contract.ApiCall, failed: "_Failed", *, hide: tuple[str, ...]
    ) -> outcomes.Fault:
        cause = failed.cause
        if isinstance(cause, Refused):
            self.budget = answers.budget_of(cause.headers) or self.budget
            try:
                body, is_json = answers.parsed(cause.content), True
            except ValueError:
                body, is_json = None, False
            code, message = self._read(body) if body is not None else ("", "")
            if message and not code:
                code = str(cause.status)  # a provider that tells no codes has at least this one
            refusal = answers.Refusal(
                status=cause.status,
                code=code,
                message=message,
                headers=cause.headers,
                is_readable=is_json,
            )
            return answers.fault_of(
                refusal, what=call.name, table=self._judge(refusal), clock=self._clock, hide=hide
            )
        if _is_before_sending(cause):
            return answers.unreachable(call.name, type(cause).__name__)
        return answers.unanswered(call.name, type(cause).__name__)


class _Failed(Exception):
    def __init__(self, cause: Exception) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause


def aim(connection: Any, address: str) -> None:
    """Points a libcloud connection at this address in place of the provider's own."""
    parts = urllib.parse.urlsplit(address)
    connection.host = parts.hostname
    connection.secure = int(parts.scheme == "https")
    connection.port = parts.port or (443 if connection.secure else 80)
    connection.request_path = parts.path.rstrip("/")
    connection.connect()


def _is_before_sending(cause: BaseException) -> bool:
    """Whether no connection came about: requests says so only in what it wraps."""
    known = requests.exceptions
    if isinstance(cause, known.ConnectTimeout):
        return True
    if not isinstance(cause, known.ConnectionError):
        return False
    inner = cause.args[0] if cause.args else None
    reason = getattr(inner, "reason", None)
    return type(reason).__name__ in {
        "NewConnectionError",
        "NameResolutionError",
        "ConnectTimeoutError",
        "SSLError",  # urllib3 gives this reason only for the handshake, never for a read
    }
