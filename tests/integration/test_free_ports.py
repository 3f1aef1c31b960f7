"""A free port must be free on every address, also on a machine full of connections."""

import socket

import pytest

from platform_server.app import failures, sockets

PUBLIC = ("::", "0.0.0.0")
ASKED = sockets.Asked(what="The port", option="--port PORT")


def test_a_port_that_is_taken_on_one_address_alone_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    bind_one = sockets._bind_one

    def first_three_are_taken(
        address: str, *, port: int, asked: sockets.Asked, skip_missing: bool
    ) -> socket.socket | None:
        if address == "0.0.0.0" and len(taken) < 3:
            with socket.socket() as other:
                other.bind(("127.0.0.1", port))
                taken.append(port)
                return bind_one(address, port=port, asked=asked, skip_missing=skip_missing)
        return bind_one(address, port=port, asked=asked, skip_missing=skip_missing)

    monkeypatch.setattr(sockets, "_bind_one", first_three_are_taken)
    bound = sockets.bind_tcp(PUBLIC, port=0, asked=ASKED, skip_missing=True)
    try:
        ports = {one.getsockname()[1] for one in bound}
        assert len(ports) == 1
        assert not ports & set(taken)
    finally:
        sockets.close_all(bound)


def test_a_port_that_was_asked_for_is_not_replaced_by_another() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with pytest.raises(failures.CannotStart, match=r"another process listens.*--port PORT"):
            sockets.bind_tcp(PUBLIC, port=port, asked=ASKED, skip_missing=True)
