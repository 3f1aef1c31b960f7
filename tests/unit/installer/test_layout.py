"""Where an installation stands, for root and for a plain user in whatever surroundings."""

import pathlib

import pytest

from installer import layout as layout_kit

PREFIX = pathlib.Path("/home/me/enlist")


def test_roots_installation_stands_where_the_docs_say() -> None:
    worker = layout_kit.system(layout_kit.Role.WORKER)
    assert str(worker.root) == "/opt/enlist/worker"
    assert str(worker.data_dir) == "/var/lib/enlist/worker"
    assert str(worker.helper) == "/var/lib/enlist/helper"
    assert str(worker.command) == "/opt/enlist/worker/current/bin/enlist"
    assert worker.accounts == ("enlist-worker",)
    platform = layout_kit.system(layout_kit.Role.PLATFORM)
    assert platform.helper is None
    assert platform.accounts == ("enlist-platform", "enlist-edge")


PLACES = {
    "a home": ({"HOME": "/home/me"}, "/home/me/.local/bin", "/home/me/.local/state/enlist/worker"),
    "a home and a state folder": (
        {"HOME": "/home/me", "XDG_STATE_HOME": "/state"},
        "/home/me/.local/bin",
        "/state/enlist/worker",
    ),
    "a relative state folder counts for nothing": (
        {"HOME": "/home/me", "XDG_STATE_HOME": "state"},
        "/home/me/.local/bin",
        "/home/me/.local/state/enlist/worker",
    ),
    "no home": ({}, f"{PREFIX}/bin", f"{PREFIX}/data/worker"),
    "the root as home": ({"HOME": "/"}, f"{PREFIX}/bin", f"{PREFIX}/data/worker"),
    "a relative home": ({"HOME": "me"}, f"{PREFIX}/bin", f"{PREFIX}/data/worker"),
}


@pytest.mark.parametrize("what", PLACES)
def test_a_plain_users_installation_with(what: str) -> None:
    environment, links, data = PLACES[what]
    places = layout_kit.rootless(layout_kit.Role.WORKER, prefix=PREFIX, environment=environment)
    assert str(places.link) == f"{links}/enlist"
    assert str(places.data_dir) == data
    assert (places.units, places.account, places.accounts, places.helper) == (None, None, (), None)
