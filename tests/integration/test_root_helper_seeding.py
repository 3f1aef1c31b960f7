"""Whom the root helper comes to believe: root's join, and never what an Agent makes up."""

import os
import pathlib

import pytest

from root_helper import last_order, places, seed, trusted
from tests.support import held_sets, root_helpers
from worker_agent.settings import documents, trust_file
from worker_agent.settings import paths as worker_paths

KEY, OTHER = held_sets.Key(days=365 * 30), held_sets.Key(days=365 * 30)
UID = os.geteuid()


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> root_helpers.Machine:
    return root_helpers.installed(tmp_path, "1.0.0", seeded=False)


def joined(
    machine: root_helpers.Machine,
    *keys: held_sets.Key,
    serial: int = 1,
    node_id: str = "web-1",
    platform_id: str = "plt_1",
) -> pathlib.Path:
    """What a join leaves in the Agent's folder."""
    where = worker_paths.Paths(folder=machine.folder / "data")
    where.folder.mkdir(mode=0o700, exist_ok=True)
    trust_file.write(
        where.trust, held_sets.held(*(keys or (KEY,)), serial=serial, platform_id=platform_id)
    )
    documents.write(where.agent, {"node_id": node_id})
    return where.folder


def take(machine: root_helpers.Machine) -> bool:
    return seed.seed(machine.places, data_dir=machine.folder / "data", uid=UID)


def believed(machine: root_helpers.Machine) -> tuple[str, str, tuple[int, int]]:
    known = trusted.find(machine.places)
    assert known is not None
    return known.platform_id, known.node_id, known.held.statement.number


def test_the_first_join_is_taken_and_once_more_changes_nothing(
    machine: root_helpers.Machine,
) -> None:
    joined(machine)
    assert take(machine)
    assert believed(machine) == ("plt_1", "web-1", (1, 1))
    assert machine.places.trust.stat().st_mode & 0o7777 == 0o600
    assert not take(machine)


def test_a_newer_set_is_taken_by_a_key_that_is_held(machine: root_helpers.Machine) -> None:
    joined(machine)
    take(machine)
    joined(machine, KEY, OTHER, serial=2)
    assert take(machine)
    assert believed(machine)[2] == (1, 2)


MADE_UP: dict[str, dict[str, str]] = {
    "a set of its own keys": {},
    "another Platform": {"platform_id": "plt_evil"},
    "another node": {"node_id": "web-2"},
}


@pytest.mark.parametrize("name", sorted(MADE_UP))
def test_what_an_agent_makes_up_is_not_believed_until_root_joins(
    machine: root_helpers.Machine, name: str
) -> None:
    joined(machine)
    take(machine)
    before = machine.places.trust.read_bytes()
    joined(machine, OTHER, serial=5, **MADE_UP[name])
    with pytest.raises(seed.NotSeeded):
        take(machine)
    assert machine.places.trust.read_bytes() == before

    seed.begin(machine.places)
    assert take(machine)
    assert believed(machine)[2] == (1, 5)
    assert not machine.places.join_by_root.exists()


def test_an_older_set_is_not_taken_even_while_root_joins(machine: root_helpers.Machine) -> None:
    joined(machine, serial=3)
    take(machine)
    seed.begin(machine.places)
    joined(machine, OTHER, serial=2)
    with pytest.raises(seed.NotSeeded):
        take(machine)
    assert believed(machine)[2] == (1, 3)


def test_another_platform_counts_its_orders_anew_and_the_same_one_does_not(
    machine: root_helpers.Machine,
) -> None:
    joined(machine)
    take(machine)
    order = last_order.LastOrder(number=(1, 9), sha256="0" * 64, stage=last_order.Stage.ENDED)
    last_order.write(machine.places, order)
    seed.begin(machine.places)
    joined(machine, KEY, serial=2)
    take(machine)
    assert last_order.read(machine.places) == order
    seed.begin(machine.places)
    joined(machine, OTHER, platform_id="plt_2")
    take(machine)
    assert last_order.read(machine.places) is None


def test_a_machine_that_left_believes_nobody(machine: root_helpers.Machine) -> None:
    joined(machine)
    take(machine)
    seed.forget(machine.places)
    assert trusted.find(machine.places) is None
    seed.forget(machine.places)


@pytest.mark.parametrize("name", ["agent.json", "trust.json"])
@pytest.mark.parametrize("trap", ["link", "pipe", "folder", "another's", "cut", "gone"])
def test_a_trap_in_the_agents_folder_leads_root_nowhere(
    machine: root_helpers.Machine, tmp_path: pathlib.Path, name: str, trap: str
) -> None:
    path = joined(machine) / name
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(path.read_bytes())
    content = path.read_bytes()
    path.unlink()
    if trap == "link":
        path.symlink_to(elsewhere)
    elif trap == "pipe":
        os.mkfifo(path, 0o600)
    elif trap == "folder":
        path.mkdir()
    elif trap == "another's":
        if UID != 0:
            pytest.skip("only root can give a file away")
        path.write_bytes(content)
        os.chown(path, 65_534, 65_534)
    elif trap == "cut":
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(seed.NotSeeded):
        take(machine)
    assert trusted.find(machine.places) is None


def test_a_folder_that_is_a_link_is_not_followed(
    machine: root_helpers.Machine, tmp_path: pathlib.Path
) -> None:
    folder = joined(machine)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.raises(seed.NotSeeded):
        take(machine)


def test_a_damaged_set_is_replaced_by_roots_join_alone(machine: root_helpers.Machine) -> None:
    joined(machine)
    take(machine)
    machine.places.trust.write_bytes(b"{")
    with pytest.raises(places.Damaged):
        take(machine)
    seed.begin(machine.places)
    assert take(machine)
    assert believed(machine) == ("plt_1", "web-1", (1, 1))
