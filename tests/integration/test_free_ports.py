"""A free port must be free on every address, also on a machine full of connections."""

import pathlib
import socket
import urllib.parse

import pytest

from platform_server.app import binding, failures, local_machines, passed, sockets
from platform_server.settings import groups

PUBLIC = ("::", "0.0.0.0")
ASKED = sockets.Asked(what="The port", option="--port PORT")


def test_a_port_that_is_taken_on_one_address_alone_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    bind_one = sockets._bind_one

    def first_three_are_taken(
        address: str, *, port: int, how: sockets._How
    ) -> socket.socket | None:
        if address == "0.0.0.0" and len(taken) < 3:
            with socket.socket() as other:
                other.bind(("127.0.0.1", port))
                taken.append(port)
                return bind_one(address, port=port, how=how)
        return bind_one(address, port=port, how=how)

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


def test_an_address_that_is_still_to_come_is_listened_on_already() -> None:
    bound = sockets.bind_tcp(
        ("127.0.0.1",), port=0, asked=ASKED, skip_missing=False, to_come=("192.0.2.77",)
    )
    try:
        assert [one.getsockname()[0] for one in bound] == ["127.0.0.1", "192.0.2.77"]
        assert len({one.getsockname()[1] for one in bound}) == 1
    finally:
        sockets.close_all(bound)


def test_no_node_is_sent_to_the_bridge_of_machines_on_this_host(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_machines, "can_make", lambda: True)
    settings = groups.Settings.model_validate(
        {
            "api": {"listen": "127.0.0.1:0"},
            "enrollment": {"port": 0, "addresses": ["127.0.0.1", "192.0.2.7"]},
            "bundles": {"port": 0},
            "gateway": {"port": 0},
        }
    )
    bridge = local_machines.address(settings)
    with binding.bound(settings, run=tmp_path, given=passed.Passed()) as bound:
        assert bridge in bound.gateway_names  # the certificate is good there
        assert [urllib.parse.urlsplit(one).hostname for one in bound.gateway_urls] == ["192.0.2.7"]
        assert bound.enrollment_url is not None
        assert urllib.parse.urlsplit(bound.enrollment_url).hostname == "127.0.0.1"
