"""A thin JSON client for providers that are spoken to without a library of their own.

Announces each call before it is made, sends it exactly once, follows no redirect, and bounds the
whole of it in time and size. Whatever is not a success becomes an `outcomes.Fault` by the
provider's own table of codes.

Known limit: answers are read whole; nothing here streams.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from provisioning import answers, contract, outcomes, providers
from runtime_kit import clock as clock_kit

Headers = Callable[[contract.ApiCall], Awaitable[Mapping[str, str]]]
"""Makes what proves us, anew for each call; may fetch a token first, and raise a `Fault`."""
Read = Callable[[Any], tuple[str, str]]
"""Finds code and message in a refusal's JSON; ("", "") where it is not the provider's."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A success. `body` is parsed JSON, None where there was none; header names in lower case."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Client:
    """Speaks JSON to one address. Close it when done."""

    def __init__(
        self,
        address: str,
        *,
        observer: contract.Observer,
        clock: clock_kit.Clock,
        headers: Headers,
        read: Read,
        table: Mapping[str, answers.Verdict],
        is_time_bound: bool = False,
        limits: providers.TimeLimits = providers.TimeLimits(),  # noqa: B008 - it is frozen
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._headers = headers
        self._read = read
        self._table = table
        self._is_time_bound = is_time_bound
        self._limits = limits
        self.budget: answers.Budget | None = None
        self._http = httpx.AsyncClient(
            base_url=address,
            timeout=httpx.Timeout(limits.read, connect=limits.connect),
            follow_redirects=False,
            trust_env=False,  # neither a proxy nor a .netrc of the environment sees credentials
            transport=transport,
        )

    async def send(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        method: str | None = None,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        hide: tuple[str, ...] = (),
    ) -> Answer:
        """Makes this call once, by `method`, or by the first word of the call's name.

        Raises:
            outcomes.Fault: anything but a success with a readable body.
        """
        verb = method or call.name.partition(" ")[0]
        proof = await self._headers(call)
        await self._observer(call)
        limits = self._limits
        seconds = limits.create if call.changes else limits.read
        try:
            async with asyncio.timeout(seconds + limits.connect):
                status, told, content = await self._exchange(
                    self._http.build_request(
                        verb,
                        path,
                        params=params,
                        json=body,
                        data=form,
                        headers={**proof, **(headers or {})},
                        timeout=httpx.Timeout(seconds, connect=limits.connect),
                    )
                )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as fault:
            raise answers.unreachable(call.name, _reason(fault)) from None
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, _TooLong) as fault:
            raise answers.unanswered(call.name, _reason(fault)) from None
        self.budget = answers.budget_of(told) or self.budget
        return self._judged(call, status, told, content, hide=hide)

    async def close(self) -> None:
        """Gives its connections back."""
        await self._http.aclose()

    async def _exchange(self, request: httpx.Request) -> tuple[int, Mapping[str, str], bytes]:
        content = bytearray()
        response = await self._http.send(request, stream=True)
        try:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > answers.MOST_BYTES:
                    raise _TooLong(f"longer than {answers.MOST_BYTES} bytes")
        finally:
            await response.aclose()
        told = {name.lower(): value for name, value in response.headers.items()}
        return response.status_code, told, bytes(content)

    def _judged(
        self,
        call: contract.ApiCall,
        status: int,
        told: Mapping[str, str],
        content: bytes,
        *,
        hide: tuple[str, ...],
    ) -> Answer:
        try:
            body, is_json = answers.parsed(content), True
        except ValueError:
            body, is_json = None, False
        if 200 <= status < 300:
            if not is_json:
                raise answers.unanswered(call.name, f"{status} with something that is not JSON")
            return Answer(status=status, body=body, headers=told)
        code, message = self._read(body) if is_json and body is not None else ("", "")
        raise answers.fault_of(
            answers.Refusal(
                status=status,
                code=code,
                message=message,
                headers=told,
                is_readable=is_json,
            ),
            what=call.name,
            table=self._table,
            clock=self._clock,
            is_time_bound=self._is_time_bound,
            hide=hide,
        )


class _TooLong(Exception):
    pass


def _reason(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__


def out_of_shape(call: contract.ApiCall) -> outcomes.Fault:
    """The fault for a success whose body is not what the provider describes."""
    return answers.unanswered(call.name, "a success without what it should hold")
