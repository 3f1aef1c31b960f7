"""`kill -9` of an engine between what it has stored for a person and its answer to him.

The person asks again, as his shell tells him, and nothing was ordered twice: the first order is
carried on by the next engine, and is what the second is told of.
"""

import json
import pathlib
from collections.abc import Callable

import pytest

from platform_server.endpoints import cloud_machines, operation_decisions
from runtime_kit import crash_points
from tests.support import faked_hetzner, operators

pytestmark = pytest.mark.timeout(240)
ORDER = ("cloud", "machines", "create", "web-1", "--provider", "hetzner")
KILLED = 75  # the answer never came


def _operation(place: faked_hetzner.Place) -> str:
    listed = json.loads(place.run("operations", "list", "-o", "json").stdout)["operations"]
    (one,) = [found for found in listed if found["kind"] == "create-machine"]
    return str(one["operation_id"])


def _order(folder: pathlib.Path, faked: faked_hetzner.Faked, *, point: str) -> None:
    with faked_hetzner.serving(folder, faked=faked, crash_at=point) as place:
        place.connect()
        place.run(*ORDER, expect=KILLED)
    with faked_hetzner.serving(folder, faked=faked) as place:
        again = place.run(*ORDER)
        operation = _operation(place)
        assert f"operations watch {operation}" in again.stdout
        operators.wait_until(lambda: bool(faked.fake.ledger.living()), what="a machine is bought")
        place.run("operations", "cancel", operation, "--wait")


def _cancel(folder: pathlib.Path, faked: faked_hetzner.Faked, *, point: str) -> None:
    with faked_hetzner.serving(folder, faked=faked, crash_at=point) as place:
        place.connect()
        place.run(*ORDER)
        operators.wait_until(lambda: bool(faked.fake.ledger.living()), what="a machine is bought")
        place.run("operations", "cancel", _operation(place), expect=KILLED)
    with faked_hetzner.serving(folder, faked=faked) as place:
        place.run("operations", "watch", _operation(place), expect=4)


STORIES: dict[str, Callable[..., None]] = {
    cloud_machines.STORED: _order,
    operation_decisions.STORED: _cancel,
}


def test_the_points_cover_every_route_that_asks_for_machines() -> None:
    assert {name for name in crash_points.declared() if name.startswith("asked.")} == set(STORIES)


@pytest.mark.parametrize(
    "point",
    [
        cloud_machines.STORED,
        pytest.param(operation_decisions.STORED, marks=pytest.mark.long),  # as slow, the same kind
    ],
)
def test_what_was_stored_before_the_answer_was_lost_is_done_once(
    point: str, tmp_path: pathlib.Path
) -> None:
    with faked_hetzner.faking() as faked:
        STORIES[point](tmp_path, faked, point=point)
        assert faked.fake.ledger.count("POST /v1/servers") == 1
        assert faked.fake.ledger.living() == []
