"""Machines that ask a real listener, many at once, each with a key of its own.

Plain asyncio and ssl with raw HTTP/1.1, so that what is measured and compared is the Platform and
no client library. A `Line` is one kept-alive TLS connection; `race` sends everybody's request at
the same moment. The clients believe any certificate: who authenticates whom is tested elsewhere.
"""

import asyncio
import contextlib
import dataclasses
import functools
import json
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from cryptography import x509

from tests.support import domain
from wire_protocol import pins, product

PATIENCE_S = 40.0
"""Longer than a listener lets a request wait for an engine that is away."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Racer:
    """One machine: its certificate and the pin that the Platform will know it by."""

    certificate_pem: str
    pin: str

    def body(self, node_id: str, token: str, **more: Any) -> bytes:
        """Its enroll request."""
        return json.dumps(
            {
                "node_id": node_id,
                "token": token,
                "certificate_pem": self.certificate_pem,
                "version": product.VERSION,
                **more,
            }
        ).encode()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it came: the headers in their order, the body untouched."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The body as a JSON object."""
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    def header(self, name: str) -> str | None:
        """A header by its lower-case name."""
        return dict(self.headers).get(name)


@functools.cache
def racers(number: int) -> Sequence[Racer]:
    """That many machines; their keys are made once a test run."""
    made = []
    for _ in range(number):
        pem = domain.new_certificate()
        pin = pins.pin_of_certificate(x509.load_pem_x509_certificate(pem.encode()))
        made.append(Racer(certificate_pem=pem, pin=pin))
    return tuple(made)


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Line:
    """One kept-alive TLS connection to a listener, from an address of the caller's choice."""

    def __init__(self, url: str, *, source: str | None = None) -> None:
        split = urllib.parse.urlsplit(url)
        assert split.hostname is not None
        assert split.port is not None
        self._place = (split.hostname, split.port)
        self._source = None if source is None else (source, 0)
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Connects; raises `OSError` when nobody takes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            self._ends = await asyncio.open_connection(
                *self._place, ssl=_context(), local_addr=self._source
            )

    async def ask(
        self,
        body: bytes,
        *,
        path: str = product.ENROLL_PATH,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends one request and reads its answer; connects anew after an idle time-out."""
        if self._ends is None or self._ends[0].at_eof():
            self.close()
            await self.open()
        assert self._ends is not None
        reader, writer = self._ends
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: platform",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        async with asyncio.timeout(PATIENCE_S):
            answer = await _read(reader)
        if answer.header("connection") == "close":
            self.close()
        return answer

    def close(self) -> None:
        """Lets go of the connection."""
        if self._ends is not None:
            self._ends[1].transport.abort()
            self._ends = None


async def _read(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    pairs = [line.partition(": ") for line in lines]
    headers = tuple((name.lower(), value) for name, _, value in pairs)
    length = int(dict(headers).get("content-length", "0"))
    return Answer(
        status=int(first.split(" ")[1]), headers=headers, body=await reader.readexactly(length)
    )


@contextlib.asynccontextmanager
async def lines(
    urls: Sequence[str], *, number: int, source: str | None = None
) -> AsyncIterator[Sequence[Line]]:
    """That many open connections, dealt out over the listeners in turn."""
    made = [Line(urls[place % len(urls)], source=source) for place in range(number)]
    try:
        await asyncio.gather(*(line.open() for line in made))
        yield made
    finally:
        for line in made:
            line.close()
        await asyncio.sleep(0)  # the transports close in the loop's next turn


async def race(made: Sequence[Line], *, bodies: Sequence[bytes]) -> Sequence[Answer]:
    """Everybody asks at the same moment; the answers stand in the order of the lines."""
    return await asyncio.gather(*(line.ask(body) for line, body in zip(made, bodies, strict=True)))


async def ask_once(
    url: str,
    body: bytes,
    *,
    path: str = product.ENROLL_PATH,
    headers: Mapping[str, str] | None = None,
    source: str | None = None,
) -> Answer:
    """One request over a connection of its own."""
    async with lines([url], number=1, source=source) as (line,):
        return await line.ask(body, path=path, headers=headers)
