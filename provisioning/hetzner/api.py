"""Hetzner Cloud through the hcloud library: one call announced, made once, its end judged.

The library is synchronous, so calls run in a few threads of the driver's own; one that hangs takes
no thread of anybody else. Its retries are off and every call has a time limit.

Known limit: a thread cannot be interrupted; one that hangs goes on until its own limit, after the
caller has been told that the outcome is unknown.
"""

import asyncio
import concurrent.futures
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import hcloud
import requests
import urllib3.exceptions

from provisioning import answers, contract, credentials, outcomes, providers
from provisioning.hetzner import errors
from provisioning.hetzner import session as session_kit

ADDRESS: Final = "https://api.hetzner.cloud/v1"
PER_PAGE: Final = 50  # the most that is given
MOST_PAGES: Final = 400  # 20,000 things of one kind: more than any project may hold
_READINGS: Final = 3
_THREADS: Final = 4
_NO_ENDPOINT: Final = "https://invalid.invalid"  # Robot's, which is never called

T = TypeVar("T")


class Api:
    """One connection's way to the provider."""

    def __init__(self, opening: providers.Opening, token: credentials.Token) -> None:
        address = opening.endpoints.get("", ADDRESS).rstrip("/")
        self._observer = opening.observer
        self._clock = opening.clock
        self._limits = opening.limits
        self._token = token.token
        self._session = session_kit.Session(
            prefix=urllib.parse.urlsplit(address).path,
            connect_seconds=opening.limits.connect,
            clock=opening.clock,
        )
        self._client = hcloud.Client(
            token=token.token.reveal(),
            api_endpoint=address,
            api_endpoint_hetzner=_NO_ENDPOINT,
            application_name="enlist",
            timeout=(opening.limits.connect, opening.limits.read),
        )
        # The library offers no switch for its retries, which repeat creates too.
        for one in (self._client._client, self._client._client_hetzner):  # noqa: SLF001 - see above
            one._retry_max_retries = 0  # noqa: SLF001
            one._session.close()  # noqa: SLF001
            one._session = self._session  # noqa: SLF001
        self._threads = concurrent.futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix="hetzner"
        )
        self.budget: answers.Budget | None = None
        self.told: session_kit.Told | None = None  # of the last answer

    async def ask(
        self,
        call: contract.ApiCall,
        do: Callable[[hcloud.Client], T],
        *,
        table: Mapping[str, answers.Verdict] = errors.TABLE,
        hide: tuple[str, ...] = (),
    ) -> T:
        """Announces this call and has `do` make it, exactly once.

        Raises:
            outcomes.Fault: it did not succeed, by `table`; `hide` are texts not to be repeated.
        """
        await self._observer(call)
        seconds = self._limits.create if call.changes else self._limits.read
        working = asyncio.get_running_loop().run_in_executor(
            self._threads, self._call, call, do, seconds
        )
        try:
            async with asyncio.timeout(seconds + self._limits.connect):
                result, told = await working
        except TimeoutError:
            raise answers.unanswered(call.name, f"nothing within {seconds:.0f} s") from None
        if told is not None:
            self.told = told
            self.budget = answers.budget_of(told.headers) or self.budget
        if isinstance(result, Exception):
            raise self._fault_of(result, call=call, told=told, table=table, hide=hide) from None
        return result

    async def send(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        table: Mapping[str, answers.Verdict] = errors.TABLE,
        hide: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Sends this body to this path by the call's own method; the JSON object of the answer.

        Not by the library's models: they refuse an answer that lacks one field younger than they
        are, and then what was bought would have to be looked for.
        """
        method = call.name.partition(" ")[0]
        sent = {} if body is None else {"json": dict(body)}
        return _document(
            call,
            await self.ask(
                call, lambda client: client.request(method, path, **sent), table=table, hide=hide
            ),
        )

    async def get(
        self, call: contract.ApiCall, path: str, *, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The JSON object at this path."""
        sent = dict(params or {})
        told = await self.ask(call, lambda client: client.request("GET", path, params=sent))
        return _document(call, told)

    async def get_or_none(self, call: contract.ApiCall, path: str) -> dict[str, Any] | None:
        """The same; None where the provider says, by its code, that there is no such thing."""
        try:
            return await self.get(call, path)
        except outcomes.Fault as fault:
            if fault.code == "not_found":
                return None
            raise

    async def pages(
        self, call: contract.ApiCall, path: str, *, of: str, params: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Everything in this list, all pages, each once by its id.

        A list that changes while it is read gives some twice and others not at all; where its
        length shows that, it is read anew.

        Raises:
            outcomes.Fault: a page could not be read; then there is no answer at all.
        """
        for _ in range(_READINGS):
            found, lengths = await self._read_pages(call, path, of=of, params=params)
            if len(lengths) == 1:
                return found
        raise answers.unanswered(call.name, f"a list that changed in each of {_READINGS} readings")

    async def _read_pages(
        self, call: contract.ApiCall, path: str, *, of: str, params: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], set[int | None]]:
        found: dict[int, dict[str, Any]] = {}
        lengths: set[int | None] = set()
        page: int | None = 1
        for _ in range(MOST_PAGES):
            told = await self.get(call, path, params={**params, "page": page, "per_page": PER_PAGE})
            try:
                found.update({int(one["id"]): one for one in told[of]})
                meta = told["meta"]["pagination"]
                page = meta["next_page"]
                lengths.add(meta["total_entries"])
            except (KeyError, TypeError, ValueError):
                raise answers.unanswered(call.name, "a list without what it should hold") from None
            if page is None:
                return list(found.values()), lengths
        raise answers.unanswered(call.name, f"more than {MOST_PAGES} pages")

    def close(self) -> None:
        """Gives connections and threads back; a call that hangs is not waited for."""
        self._session.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(
        self, call: contract.ApiCall, do: Callable[[hcloud.Client], T], seconds: float
    ) -> tuple[T | Exception, session_kit.Told | None]:
        with self._session.announced(call, seconds=seconds):
            try:
                return do(self._client), self._session.told
            except session_kit.Unannounced:
                raise
            except Exception as fault:  # noqa: BLE001 - judged, and raised, by the loop's thread
                return fault, self._session.told

    def _fault_of(
        self,
        fault: Exception,
        *,
        call: contract.ApiCall,
        told: session_kit.Told | None,
        table: Mapping[str, answers.Verdict],
        hide: tuple[str, ...],
    ) -> Exception:
        if isinstance(fault, hcloud.APIException):
            status = told.status if told is not None else 0
            is_readable = isinstance(fault.code, str)
            return answers.fault_of(
                answers.Refusal(
                    status=status,
                    code=str(fault.code) if is_readable else "",
                    message=fault.message or "",
                    headers=told.headers if told is not None else {},
                    is_readable=is_readable,
                ),
                what=call.name,
                table=table,
                clock=self._clock,
                hide=(self._token.reveal(), *hide),
            )
        if isinstance(fault, requests.RequestException):
            if _was_never_sent(fault):
                return answers.unreachable(call.name, _reason(fault))
            return answers.unanswered(call.name, _reason(fault))
        if isinstance(fault, KeyError | TypeError | AttributeError | ValueError):
            return answers.unanswered(call.name, "an answer without what it should hold")
        return fault


def _document(call: contract.ApiCall, told: Any) -> dict[str, Any]:
    """Every answer there is an object; `null` is not "there is none"."""
    if not isinstance(told, dict):
        raise answers.unanswered(call.name, "an answer that is no object")
    return told


def _was_never_sent(fault: requests.RequestException) -> bool:
    if isinstance(fault, requests.ConnectTimeout):
        return True
    inner = fault.args[0] if fault.args else None
    reason = inner.reason if isinstance(inner, urllib3.exceptions.MaxRetryError) else inner
    if isinstance(
        reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError
    ):
        return True
    cause = reason.args[0] if isinstance(reason, urllib3.exceptions.SSLError) else None
    return isinstance(cause, ssl.SSLCertVerificationError)


def _reason(fault: requests.RequestException) -> str:
    """The kind of fault alone: the library's own words carry addresses of objects."""
    inner = fault.args[0] if fault.args else None
    reason = inner.reason if isinstance(inner, urllib3.exceptions.MaxRetryError) else inner
    if isinstance(fault, session_kit.Unreadable):
        return str(fault)
    return type(reason or fault).__name__
