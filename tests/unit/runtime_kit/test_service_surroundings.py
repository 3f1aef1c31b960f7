"""What is read from a manager's environment; the datagrams themselves cross a socket elsewhere."""

import pytest

from runtime_kit import service_manager

PID = 4711


def surroundings(*, pid: int = PID, count: str = "2", names: str = "api:gateway") -> dict[str, str]:
    return {"LISTEN_PID": str(pid), "LISTEN_FDS": count, "LISTEN_FDNAMES": names, "HOME": "/"}


def test_without_a_manager_everything_does_nothing() -> None:
    manager = service_manager.of({})
    manager.ready()
    manager.status("at work")
    manager.stopping()
    assert service_manager.take_sockets({}) == {}


def test_an_abstract_address_begins_with_a_zero_byte() -> None:
    assert service_manager.of({"NOTIFY_SOCKET": "@here"}).address == "\0here"


@pytest.mark.parametrize("given", ["vsock:2:1234", "here", "./here"])
def test_an_address_that_is_no_unix_socket_is_refused(given: str) -> None:
    with pytest.raises(service_manager.BadSurroundings, match="NOTIFY_SOCKET"):
        service_manager.of({"NOTIFY_SOCKET": given})


@pytest.mark.parametrize("count", ["0", "-1", "65", "two", "²"])
def test_a_count_out_of_shape_is_refused(count: str) -> None:
    with pytest.raises(service_manager.BadSurroundings, match="LISTEN_FDS"):
        service_manager.take_sockets(surroundings(count=count), pid=PID)


def test_names_must_be_as_many_as_sockets() -> None:
    with pytest.raises(service_manager.BadSurroundings, match="3 names for 2"):
        service_manager.take_sockets(surroundings(names="a:b:c"), pid=PID)


def test_sockets_of_another_process_are_left_alone() -> None:
    assert service_manager.take_sockets(surroundings(pid=PID + 1), pid=PID) == {}
