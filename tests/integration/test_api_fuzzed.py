"""What no schema describes: bytes at the API and at the enrollment listener, made up by hypothesis.

test_schemathesis.py asks what the OpenAPI document leads a client to ask. Here strangers send
what is no JSON, no UTF-8, no certificate and no HTTP to every route of that document. Nothing is
ever a fault of ours: the answer is below 500 and a problem document where it is a refusal, and
the engine is the same process afterwards. `/events` is only read to its present end
(`follow=false`), since a stream that follows does not end. The examples are the same each run.
"""

import asyncio
import base64
import dataclasses
import http.client
import itertools
import json
import re
import socket
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from platform_server.access import permissions
from tests.support import operators, racers, real_platform
from wire_protocol import product

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("api-fuzzed")]

UNLIMITED = {
    "ENLIST_ENROLLMENT__ATTEMPTS_PER_MINUTE": "1000000",
    "ENLIST_PROBE__INTERVAL_SECONDS": "3600",
}
SECONDS = 20
FEW, MANY = 200, 3000


def _examples(number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return hypothesis.settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running Platform, a token that may do everything, and what its document lists."""

    platform: real_platform.RealPlatform
    token: str
    operations: tuple[tuple[str, str, Sequence[str]], ...]

    @property
    def place(self) -> tuple[str, int]:
        split = urllib.parse.urlsplit(str(self.platform.said["api"]))
        assert split.hostname is not None
        assert split.port is not None
        return split.hostname, split.port


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzzed") / "platform"
    with real_platform.running(folder, environment=UNLIMITED) as platform:
        allowed = [word for one in sorted(permissions.ALL) for word in ("--permission", one)]
        made = platform.enlist("tokens", "create", "--name", "all", "-o", "json", *allowed)
        with operators.local(platform) as client:
            document = client.get(f"{client.base_url.copy_with(path='/')}openapi.json").json()
        operations = tuple(
            (method.upper(), path, _field_names(document, operation))
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        )
        engine = platform.child("platform_server engine").pid
        yield Target(platform=platform, token=json.loads(made)["token"], operations=operations)
        assert platform.child("platform_server engine").pid == engine
        assert "fault of ours" not in platform.log.read_text()


def _field_names(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Sequence[str]:
    """The fields of the body that an operation takes; none where it takes no body."""
    if "requestBody" not in operation:
        return ()
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    named = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return tuple(sorted(named.get("properties", {})))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """An answer; no status where the connection was closed without one."""

    status: int | None
    media_type: str = ""
    body: bytes = b""


def _send(place: tuple[str, int], raw: bytes, *, then_nothing: bool = False) -> Got:
    with socket.create_connection(place, timeout=SECONDS) as sock:
        sock.sendall(raw)
        if then_nothing:
            sock.shutdown(socket.SHUT_WR)  # or it would wait for the rest of a longer body
        answer = http.client.HTTPResponse(sock)
        try:
            answer.begin()
            body = answer.read(1_000_000)
        except (http.client.HTTPException, ConnectionError):
            return Got(status=None)
        finally:
            answer.close()
    return Got(status=answer.status, media_type=answer.headers.get("content-type", ""), body=body)


def _check(got: Got) -> None:
    """Below 500, and a whole problem document where it is a refusal."""
    assert got.status is not None
    assert got.status < 500, got
    if got.status >= 400:
        assert got.media_type == "application/problem+json", got
        problem = json.loads(got.body)
        assert problem["status"] == got.status
        assert problem["code"]
        assert problem["class"] in ("transient", "permanent", "needs-operator")


def _request(
    target: Target,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: tuple[bytes, ...] = (),
) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1".encode(),
        b"Host: platform",
        b"Connection: close",
        *headers,
    ]
    if not any(header.lower().startswith(b"authorization:") for header in headers):
        lines.append(f"Authorization: Bearer {target.token}".encode())
    if body is not None:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def _filled(path: str, texts: Iterator[str]) -> str:
    """A path with its placeholders filled; a stream is only read to its present end."""
    made = re.sub(r"\{[a-z_]+\}", lambda _: urllib.parse.quote(next(texts), safe=""), path)
    return f"{made}?follow=false" if path.endswith("/events") else made


ODD_TEXT = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "..",
            ".",
            "%00",
            "a" * 5000,
            "\x00",
            "\ud7ff",
            "\u0661",
            "\ufb01",
            "-1",
            "1e9999",
            "null",
            "'--",
        ]
    ),
)
ODD_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from([10**400, -(2**63) - 1, 2**64, 1e308])
    | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD_TEXT, inner, max_size=4),
    max_leaves=12,
)
ODD_BYTES = st.one_of(
    st.binary(max_size=300),
    ODD_JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [
            b"",
            b"null",
            b"[]",
            b'"',
            b"NaN",
            b"-Infinity",
            b'"\\ud800"',
            b'{"a":1,"a":2}',
            b"\xef\xbb\xbf{}",
            "{}".encode("utf-16"),
            b"[" * 50_000,
            b'{"a":' * 20_000,
            b"1" * 60_000,
        ]
    ),
)


PLAUSIBLE = st.sampled_from(
    [
        *("fuzz-1", "local", "FUZZ-1.", 1, 60, 1440, True, False, None, {"zone": "a"}, ["zone"]),
        *(["10.0.0.0/8"], ["::/0"], ["nodes.view"], "enrollment", "api", "7d", "0.1.0"),
        *("2030-01-01T00:00:00Z", "1970-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"),
    ]
)
"""Values that some field of some route takes; at other fields they are odd too."""


def _objects(names: Sequence[str]) -> st.SearchStrategy[bytes]:
    """Objects with a route's own fields and whatever in them."""
    values = st.dictionaries(st.sampled_from(names), PLAUSIBLE | ODD_JSON, max_size=6)
    return values.map(lambda value: json.dumps(value).encode())


def _try_bodies(target: Target, *, number: int) -> None:
    takers = [
        st.tuples(st.just((method, path)), ODD_BYTES | _objects(names) if names else ODD_BYTES)
        for method, path, names in target.operations
        if method != "GET"
    ]

    @_examples(number)
    @hypothesis.given(
        sent=st.one_of(takers),
        text=ODD_TEXT.filter(bool),
        check=st.booleans(),
    )
    def each(sent: tuple[tuple[str, str], bytes], text: str, *, check: bool) -> None:
        (method, path), body = sent
        filled = _filled(path, itertools.repeat(text)) + ("?check=true" if check else "")
        _check(_send(target.place, _request(target, method, filled, body=body)))

    each()


def _try_queries(target: Target, *, number: int) -> None:
    @_examples(number)
    @hypothesis.given(
        chosen=st.sampled_from([(method, path) for method, path, _ in target.operations]),
        text=ODD_TEXT.filter(bool),
        query=st.dictionaries(
            st.sampled_from(("limit", "cursor", "infra", "label", "after", "action", "check"))
            | st.sampled_from(("limit", "infra", "label", "cursor"))
            | st.text(max_size=10),
            ODD_TEXT | st.sampled_from(("1", "500", "default", "zone=a", "true", "node.enrolled")),
            min_size=1,
            max_size=3,
        ),
    )
    def each(chosen: tuple[str, str], text: str, query: dict[str, str]) -> None:
        method, path = chosen
        filled = _filled(path, itertools.repeat(text))
        more = urllib.parse.urlencode(query)
        joined = f"{filled}{'&' if '?' in filled else '?'}{more}"
        body = None if method in ("GET", "DELETE") else b"{}"
        _check(_send(target.place, _request(target, method, joined, body=body)))

    each()


ODD_HEADER = st.binary(max_size=60).map(
    lambda raw: raw.translate(None, b"\r\n\0")  # what ends a header is tried in whole requests
)


def _try_headers(target: Target, *, number: int) -> None:
    @_examples(number)
    @hypothesis.given(
        name=st.sampled_from(
            [b"Authorization", b"Idempotency-Key", b"Last-Event-ID", b"Forwarded", b"Accept"]
        ),
        value=ODD_HEADER,
        bearer=st.booleans(),
        chosen=st.sampled_from([("GET", "/api/v1/events"), ("POST", "/api/v1/enrollments")]),
    )
    def each(name: bytes, value: bytes, *, bearer: bool, chosen: tuple[str, str]) -> None:
        method, path = chosen
        shown = b"Bearer " + value if bearer and name == b"Authorization" else value
        header = name + b": " + shown
        body = b'{"node_id": "fuzz-1"}' if method == "POST" else None
        raw = _request(target, method, _filled(path, iter(())), body=body, headers=(header,))
        _check(_send(target.place, raw))

    each()


def _try_raw(target: Target, *, number: int) -> None:
    whole = _request(target, "POST", "/api/v1/enrollments", body=b'{"node_id": "fuzz-2"}')

    @_examples(number)
    @hypothesis.given(
        at=st.integers(0, len(whole) - 1), put=st.binary(max_size=8), cut=st.integers(0, 8)
    )
    def each(at: int, put: bytes, cut: int) -> None:
        got = _send(target.place, whole[:at] + put + whole[at + cut :], then_nothing=True)
        assert got.status is None or got.status < 500, got

    each()


def _try_enrolling(target: Target, *, number: int) -> None:
    """A good token, so that all behind its proof is reached; the certificate is what is odd."""
    machines = racers.racers(2)
    with operators.local(target.platform) as client:
        node_id = f"fuzz-{number}"
        token = operators.issue(client, node_id, replace=True)
    good = json.loads(machines[0].body(node_id, token))
    der = base64.b64decode("".join(good["certificate_pem"].splitlines()[1:-1]))
    loop = asyncio.new_event_loop()
    line = racers.Line(target.platform.enrollment_url)

    @_examples(number)
    @hypothesis.given(
        at=st.integers(0, len(der) - 1),
        put=st.binary(min_size=1, max_size=3),
        change=st.dictionaries(st.sampled_from(sorted(good)), ODD_JSON, max_size=2)
        | st.dictionaries(
            st.sampled_from(("url", "reported_labels", "instance", "ticket")), ODD_JSON, max_size=2
        ),
    )
    def each(at: int, put: bytes, change: dict[str, Any]) -> None:
        odd = der[:at] + put + der[at + len(put) :]
        hypothesis.assume(odd != der)
        lines = ("-----BEGIN CERTIFICATE-----", base64.b64encode(odd).decode())
        pem = "\n".join((*lines, "-----END CERTIFICATE-----", ""))
        body = json.dumps({**good, "certificate_pem": pem, **change}).encode()
        answer = loop.run_until_complete(line.ask(body))
        assert answer.status < 500, answer
        assert answer.status in (400, 403, 409, 413, 422), answer

    try:
        each()
    finally:
        line.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


TRIES = {
    "bodies": _try_bodies,
    "paths and queries": _try_queries,
    "headers": _try_headers,
    "requests that are no HTTP": _try_raw,
    "certificates and fields at the listener": _try_enrolling,
}


@pytest.mark.parametrize("what", TRIES)
def test_nothing_made_up_is_a_fault_of_ours_in(what: str, target: Target) -> None:
    TRIES[what](target, number=FEW)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", TRIES)
def test_nothing_made_up_is_a_fault_of_ours_among_many_in(what: str, target: Target) -> None:
    TRIES[what](target, number=MANY)


def test_the_trust_question_takes_nothing_but_an_empty_object(target: Target) -> None:
    async def ask_all() -> None:
        async with racers.lines([target.platform.enrollment_url], number=1) as (line,):
            for body in (b"[]", b"null", b'{"a":1}', b"{", b"\xff", b"", b'""', b"[" * 60_000):
                answer = await line.ask(body, path=product.TRUST_PATH)
                assert answer.status == 422, body

    asyncio.run(ask_all())
