"""The HTTP session under the hcloud library: only what was announced, no redirects, bounded.

The library would send creates again by itself, wait for ever, follow redirects with the token and
read answers of any size; the first it is told, the rest is kept from it here. What was answered
beside the body (status, Date, budget) is kept for whoever reads the outcome.

Known limit: `requests` counts its time limits between bytes; the whole is bounded only for bodies.
"""

import contextlib
import dataclasses
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import requests

from provisioning import answers, contract
from runtime_kit import clock as clock_kit

_NUMBER: Final = re.compile(r"(?<=/)\d+(?=/|$)")
_CHUNK_BYTES: Final = 65_536


class Unannounced(RuntimeError):
    """The library wanted to send what nobody had written down; nothing was sent."""


class Unreadable(requests.RequestException):
    """An answer that is too long, too slow, or leads elsewhere."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an answer said beside its body; header names in lower case."""

    status: int
    headers: Mapping[str, str]


class Session(requests.Session):
    """One a driver; its threads do not see one another's announcements."""

    def __init__(self, *, prefix: str, connect_seconds: float, clock: clock_kit.Clock) -> None:
        super().__init__()
        self.trust_env = False  # a .netrc would replace the token, a proxy would see it
        self._prefix = prefix
        self._connect_seconds = connect_seconds
        self._clock = clock
        self._here = threading.local()

    @contextlib.contextmanager
    def announced(self, call: contract.ApiCall, *, seconds: float) -> Iterator[None]:
        """Lets exactly one request of this call through, within so many seconds."""
        self._here.call, self._here.seconds, self._here.told = call, seconds, None
        try:
            yield
        finally:
            self._here.call = None

    @property
    def told(self) -> Told | None:
        """What the last answer in this thread said beside its body."""
        told: Told | None = getattr(self._here, "told", None)
        return told

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        """Sends it once, if it is what was announced, and reads the answer within the bounds."""
        call: contract.ApiCall | None = getattr(self._here, "call", None)
        name = self._name_of(str(method), str(url))
        if call is None or call.name != name:
            raise Unannounced(f"{name} was not announced.")
        self._here.call = None
        seconds: float = self._here.seconds
        until = self._clock.monotonic() + seconds
        kwargs.update(timeout=(self._connect_seconds, seconds), allow_redirects=False, stream=True)
        response = super().request(method, url, *args, **kwargs)
        with contextlib.closing(response):
            content = self._read(response, until=until)
        response._content = content  # noqa: SLF001 - as requests itself does once it is read
        headers = {name.lower(): value for name, value in response.headers.items()}
        self._here.told = Told(status=response.status_code, headers=headers)
        if 300 <= response.status_code < 400:
            raise Unreadable(f"{response.status_code}, which leads elsewhere")
        return response

    def _read(self, response: requests.Response, *, until: float) -> bytes:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            content += chunk
            if len(content) > answers.MOST_BYTES:
                raise Unreadable(f"an answer longer than {answers.MOST_BYTES} bytes")
            if self._clock.monotonic() > until:
                raise Unreadable("an answer that took too long")
        return bytes(content)

    def _name_of(self, method: str, url: str) -> str:
        path = urllib.parse.urlsplit(url).path
        path = f"/v1{path.removeprefix(self._prefix)}"
        return f"{method} {_NUMBER.sub('{id}', path)}"
