"""The fence around unit tests: no process, no socket, two seconds.

An audit hook sees every attempt, whichever module makes it. The one socket allowed is the
Unix pair by which an event loop wakes itself.
"""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = 2
PROPERTY_SECONDS = 30  # a property is tried a hundred times and more

_PROCESS_EVENTS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system"}
)
_SOCKET_EVENTS = frozenset(
    {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname"}
)


class _Fence:
    up = False
    installed = False


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if not _Fence.up:
        return
    if event in _PROCESS_EVENTS:
        raise RuntimeError(f"A unit test starts no process ({event})")
    if event in _SOCKET_EVENTS or (event == "socket.__new__" and args[1] != socket.AF_UNIX):
        raise RuntimeError(f"A unit test opens no socket ({event})")


@pytest.fixture(autouse=True)
def _fence() -> Iterator[None]:
    if not _Fence.installed:
        sys.addaudithook(_watch)  # stays for the life of the process, hence the switch
        _Fence.installed = True
    _Fence.up = True
    try:
        yield
    finally:
        _Fence.up = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every unit test its two seconds."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("timeout") is None:
            tried = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
            seconds = PROPERTY_SECONDS if tried else SECONDS
            item.add_marker(pytest.mark.timeout(seconds, func_only=True))
