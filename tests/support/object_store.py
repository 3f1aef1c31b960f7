"""A store over real TLS that takes PUT and GET, and judges what it is asked as the real ones do.

With keys it checks Signature Version 4 by itself, over what really arrived: another hash, header or
path than was signed is 403, as is a time 15 minutes away. With a token it wants that as a bearer.
It can be told to answer 503 or to cut the connection for a number of requests. Its signature check
is written apart from the product's and shares nothing with it.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import hmac
import http.server
import pathlib
import re
import ssl
import threading
from collections.abc import Iterator
from typing import Any

from tests.support import certificates

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/s3/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)
_SKEW = datetime.timedelta(minutes=15)


@dataclasses.dataclass(slots=True, kw_only=True)
class Store:
    """What a running store holds, wants, and was asked."""

    keys: dict[str, str] = dataclasses.field(default_factory=dict)
    token: str | None = None
    held: dict[str, bytes] = dataclasses.field(default_factory=dict)
    asked: list[str] = dataclasses.field(default_factory=list)
    busy: int = 0  # requests that are answered 503
    cuts: int = 0  # requests whose connection is cut
    redirect: str | None = None
    url: str = ""
    ca_file: pathlib.Path = pathlib.Path()

    def refusal(self, request: http.server.BaseHTTPRequestHandler, body: bytes) -> str | None:
        """Why the request is not allowed, or None."""
        given = request.headers.get("authorization", "")
        if self.token is not None:
            return None if given == f"Bearer {self.token}" else "AccessDenied"
        if not self.keys:
            return None
        return _unsigned(request, body, keys=self.keys)


def _unsigned(
    request: http.server.BaseHTTPRequestHandler, body: bytes, *, keys: dict[str, str]
) -> str | None:
    """What is wrong with the request's signature, or None."""
    match = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        return "AuthorizationHeaderMalformed"
    access_key, day, region, names, signature = match.groups()
    stamp = request.headers.get("x-amz-date", "")
    moment = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%S%z")
    claimed = request.headers.get("x-amz-content-sha256", "")
    if abs(datetime.datetime.now(datetime.UTC) - moment) > _SKEW:
        return "RequestTimeTooSkewed"
    if claimed != hashlib.sha256(body).hexdigest():
        return "XAmzContentSHA256Mismatch"
    if access_key not in keys or not stamp.startswith(day):
        return "InvalidAccessKeyId"
    headers = (f"{name}:{request.headers[name].strip()}" for name in names.split(";"))
    canonical = "\n".join((request.command, request.path, "", *headers, "", names, claimed))
    scope = f"{day}/{region}/s3/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    key = b"AWS4" + keys[access_key].encode()
    for piece in scope.split("/"):
        key = hmac.digest(key, piece.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
    expected = hmac.digest(key, text.encode(), "sha256").hex()
    signed = {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names.split(";"))
    return None if signed and hmac.compare_digest(expected, signature) else "SignatureDoesNotMatch"


class _Handler(http.server.BaseHTTPRequestHandler):
    store: Store

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self._allowed(body):
            self.store.held[self.path] = body
            self._answer(200, b"")

    def do_GET(self) -> None:
        if self._allowed(b""):
            held = self.store.held.get(self.path)
            self._answer(404 if held is None else 200, held or b"<Code>NoSuchKey</Code>")

    def _allowed(self, body: bytes) -> bool:
        self.store.asked.append(f"{self.command} {self.path}")
        if self.store.cuts:
            self.store.cuts -= 1
            self.close_connection = True
            return False
        if self.store.busy:
            self.store.busy -= 1
            self._answer(503, b"<Code>SlowDown</Code>")
            return False
        if self.store.redirect is not None:
            self._answer(307, b"", location=self.store.redirect)
            return False
        refusal = self.store.refusal(self, body)
        if refusal is not None:
            self._answer(403, f"<Code>{refusal}</Code>".encode())
        return refusal is None

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has there
        pass


@contextlib.contextmanager
def running(folder: pathlib.Path, **settings: Any) -> Iterator[Store]:
    """A store on a free port of 127.0.0.1; its certificate rests on `ca_file` alone."""
    issued = certificates.issue()
    store = Store(ca_file=folder / "store-ca.pem", **settings)
    store.ca_file.write_text(issued.pem)
    handler = type("Handler", (_Handler,), {"store": store})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.write(folder / "store.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    store.url = f"https://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
