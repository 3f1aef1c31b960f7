"""What the SDK's clients make of a Platform that misbehaves, on real sockets."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import enlist
from enlist import driving, exchange, nodes, plain, targets
from runtime_kit import retry

ONCE = retry.Schedule(first_seconds=0.01, tries=1)
TWICE = retry.Schedule(first_seconds=0.01, tries=2)
EMPTY = b'{"nodes":[],"enrollments":[]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
GOOD = HEAD % len(EMPTY) + EMPTY

MakeClient = Callable[[targets.Target, retry.Schedule], driving.Waiting]


def _plain(target: targets.Target, schedule: retry.Schedule) -> driving.Waiting:
    return plain.PlainClient(target=target, schedule=schedule, pause=lambda _seconds: None)


def _full(target: targets.Target, schedule: retry.Schedule) -> driving.Waiting:
    return enlist.Client(target=target, schedule=schedule, pause=lambda _seconds: None)


CLIENTS: dict[str, MakeClient] = {"with h11 alone": _plain, "with httpx": _full}


@pytest.fixture(params=CLIENTS.values(), ids=list(CLIENTS))
def make(request: pytest.FixtureRequest) -> MakeClient:
    found: MakeClient = request.param
    return found


@contextlib.contextmanager
def answering(path: Path, *answers: bytes) -> Iterator[list[bytes]]:
    """A server on a Unix socket that gives each connection the next answer and closes it."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(8)
        listening.settimeout(10)

        def serve() -> None:
            for answer in answers:
                opened, _ = listening.accept()
                with opened, contextlib.suppress(OSError):
                    opened.settimeout(10)
                    heard.append(opened.recv(65_536))
                    opened.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield heard
        finally:
            thread.join(10)


def _target(tmp_path: Path) -> targets.Target:
    return targets.parse(f"unix://{tmp_path}/p.sock")


def test_a_good_answer_is_read(make: MakeClient, tmp_path: Path) -> None:
    target = _target(tmp_path)
    with answering(tmp_path / "p.sock", GOOD) as heard, make(target, ONCE) as client:
        assert client.send(nodes.list_()).nodes == []
    assert heard[0].startswith(b"GET /api/v1/nodes HTTP/1.1\r\n")
    assert b"authorization" not in heard[0].lower()


BROKEN = {
    "it says nothing": b"",
    "it is cut in the head": b"HTTP/1.1 200 OK\r\ncontent-",
    "it is cut in the body": HEAD % 100 + b"{",
    "it is not HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_temporary(answer: bytes, make: MakeClient, tmp_path: Path) -> None:
    target = _target(tmp_path)
    with (
        answering(tmp_path / "p.sock", answer),
        make(target, ONCE) as client,
        pytest.raises(enlist.Temporary),
    ):
        client.document(nodes.list_())


def test_a_read_is_asked_again_after_a_cut(make: MakeClient, tmp_path: Path) -> None:
    target = _target(tmp_path)
    with answering(tmp_path / "p.sock", b"", GOOD) as heard, make(target, TWICE) as client:
        assert client.document(nodes.list_()) == {"nodes": [], "enrollments": []}
    assert len(heard) == 2


def test_a_removal_is_not_asked_again_after_a_cut(make: MakeClient, tmp_path: Path) -> None:
    target = _target(tmp_path)
    with (
        answering(tmp_path / "p.sock", b"") as heard,
        make(target, TWICE) as client,
        pytest.raises(enlist.Temporary),
    ):
        client.document(nodes.remove("a"))
    assert len(heard) == 1


def test_a_redirect_is_not_followed(make: MakeClient, tmp_path: Path) -> None:
    target = _target(tmp_path)
    answer = b"HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    with (
        answering(tmp_path / "p.sock", answer),
        make(target, ONCE) as client,
        pytest.raises(enlist.Invalid),
    ):
        client.document(nodes.list_())


def test_an_answer_past_the_limit_is_not_read(
    make: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER_BYTES", 1000)
    target = _target(tmp_path)
    with (
        answering(tmp_path / "p.sock", HEAD % 5000 + b"x" * 5000),
        make(target, ONCE) as client,
        pytest.raises(enlist.Fault),
    ):
        client.document(nodes.list_())


# httpcore drops the socket with which it could not connect without closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nobody_there_is_temporary_and_says_how_to_start(make: MakeClient, tmp_path: Path) -> None:
    with make(_target(tmp_path), ONCE) as client, pytest.raises(enlist.Temporary) as caught:
        client.document(nodes.remove("a"))
    assert "enlist serve" in str(caught.value)


EVENT = b'id: 1\ndata: {"seq":1}\n\n'
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"


def test_a_cut_stream_of_events_is_resumed(make: MakeClient, tmp_path: Path) -> None:
    first = STREAM + b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
    second = EVENT.replace(b"1", b"2")
    rest = STREAM + b"%x\r\n%s\r\n0\r\n\r\n" % (len(second), second)
    target = _target(tmp_path)
    with (
        answering(tmp_path / "p.sock", first, rest) as heard,
        make(target, ONCE) as client,
        contextlib.closing(client.event_documents(client.tail())) as found,
    ):
        assert [next(found), next(found)] == [{"seq": 1}, {"seq": 2}]
    assert heard[1].startswith(b"GET /api/v1/events?after=1 ")
