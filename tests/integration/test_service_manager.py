"""The datagrams to the service manager, and its sockets in a process that was really started."""

import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from runtime_kit import service_manager

PID = 4711

_TAKES = """
import os, sys
from runtime_kit import service_manager
found = service_manager.take_sockets(os.environ)
print({name: [one.fileno() for one in several] for name, several in found.items()})
"""


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """Two descriptors with numbers next to each other, as a manager leaves them."""
    one, other = socket.socketpair()
    with one, other:
        first = 900
        os.dup2(one.fileno(), first)
        os.dup2(other.fileno(), first + 1)
        yield first, first + 1
        for number in (first, first + 1):
            try:
                os.close(number)
            except OSError:
                continue


def surroundings(*, pid: int = PID, count: str = "2", names: str = "api:gateway") -> dict[str, str]:
    return {"LISTEN_PID": str(pid), "LISTEN_FDS": count, "LISTEN_FDNAMES": names, "HOME": "/"}


@pytest.fixture
def hearing(tmp_path: pathlib.Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        yield listener


def test_each_word_is_one_datagram_and_a_status_one_line(hearing: socket.socket) -> None:
    manager = service_manager.of({"NOTIFY_SOCKET": str(hearing.getsockname())})
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    manager.ready("Serves\nREADY=0")
    manager.status("at work")
    manager.stopping()
    manager.needs_longer(2.5)
    manager.reloading()
    heard = [hearing.recv(4096).decode() for _ in range(5)]
    assert heard[:4] == [
        "READY=1\nSTATUS=Serves READY=0",
        "STATUS=at work",
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=2500000",
    ]
    word, _, micros = heard[4].partition("\nMONOTONIC_USEC=")
    assert word == "RELOADING=1"
    assert int(micros) >= before


def test_an_abstract_socket_is_reached() -> None:
    name = f"enlist-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        listener.settimeout(5)
        service_manager.of({"NOTIFY_SOCKET": "@" + name}).ready()
        assert listener.recv(100) == b"READY=1"


def test_a_manager_that_is_gone_is_told_as_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        service_manager.of({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


def test_a_started_process_finds_its_sockets_at_three_and_four() -> None:
    one, other = socket.socketpair()
    with one, other:
        shell = (
            f'exec 3<&{one.fileno()} 4<&{other.fileno()}; LISTEN_PID=$$ exec "$@"'  # as a manager
        )
        environment = {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "api:gateway", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            ["bash", "-c", shell, "sh", sys.executable, "-c", _TAKES],
            pass_fds=(one.fileno(), other.fileno()),
            env=environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            cwd=pathlib.Path(__file__).parents[2],
        )
    assert done.stdout.strip() == "{'api': [3], 'gateway': [4]}"


def test_sockets_come_by_name_and_no_child_inherits_them(pair: tuple[int, int]) -> None:
    environment = surroundings()
    found = service_manager.take_sockets(environment, pid=PID, first=pair[0])
    assert {name: [one.fileno() for one in several] for name, several in found.items()} == {
        "api": [pair[0]],
        "gateway": [pair[1]],
    }
    assert not any(os.get_inheritable(number) for number in pair)
    assert environment == {"HOME": "/"}
    service_manager.close(found)


def test_one_name_may_have_several_sockets(pair: tuple[int, int]) -> None:
    found = service_manager.take_sockets(surroundings(names="api:api"), pid=PID, first=pair[0])
    assert [one.fileno() for one in found["api"]] == list(pair)
    service_manager.close(found)


def test_a_descriptor_that_is_no_socket_is_refused() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(service_manager.BadSurroundings, match="no socket"):
            service_manager.take_sockets(
                surroundings(count="1", names="api"), pid=PID, first=reading
            )
    finally:
        os.close(reading)
        os.close(writing)
