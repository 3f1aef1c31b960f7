"""Whom the root helper comes to believe: root's join, and never what an Agent makes up."""

import os
import pathlib

import pytest

from root_helper import expected, last_order, places, seed, trusted
from tests.support import held_sets, root_helpers
from wire_protocol import ids
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


def root_joins(
    machine: root_helpers.Machine, *keys: held_sets.Key, node_id: str | None = "web-1"
) -> None:
    """With a token that names these keys; an enrollment token names none."""
    seed.begin(
        machine.places,
        expected.Expected(
            node_id=None if node_id is None else ids.NodeId(node_id),
            trust_key_ids=tuple(key.public.key_id for key in keys),
        ),
    )


def seeded(machine: root_helpers.Machine, *, serial: int = 1) -> None:
    root_joins(machine, KEY)
    joined(machine, serial=serial)
    assert take(machine)


def believed(machine: root_helpers.Machine) -> tuple[str, str, tuple[int, int]]:
    known = trusted.find(machine.places)
    assert known is not None
    return known.platform_id, known.node_id, known.held.statement.number


def test_the_first_join_is_taken_and_once_more_changes_nothing(
    machine: root_helpers.Machine,
) -> None:
    root_joins(machine, KEY)
    joined(machine)
    assert take(machine)
    assert believed(machine) == ("plt_1", "web-1", (1, 1))
    assert machine.places.trust.stat().st_mode & 0o7777 == 0o600
    assert not take(machine)


def test_a_newer_set_is_taken_by_a_key_that_is_held(machine: root_helpers.Machine) -> None:
    seeded(machine)
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
    seeded(machine)
    before = machine.places.trust.read_bytes()
    joined(machine, OTHER, serial=5, **MADE_UP[name])
    with pytest.raises(seed.NotSeeded):
        take(machine)
    assert machine.places.trust.read_bytes() == before

    root_joins(machine, KEY)
    with pytest.raises(seed.NotSeeded, match="not what root joined"):
        take(machine)
    assert machine.places.trust.read_bytes() == before

    root_joins(machine, OTHER, node_id=MADE_UP[name].get("node_id", "web-1"))
    assert take(machine)
    assert believed(machine)[2] == (1, 5)
    assert not machine.places.join_by_root.exists()


def test_an_older_set_is_not_taken_even_while_root_joins(machine: root_helpers.Machine) -> None:
    seeded(machine, serial=3)
    root_joins(machine, OTHER)
    joined(machine, OTHER, serial=2)
    with pytest.raises(seed.NotSeeded):
        take(machine)
    assert believed(machine)[2] == (1, 3)


def test_another_platform_counts_its_orders_anew_and_the_same_one_does_not(
    machine: root_helpers.Machine,
) -> None:
    seeded(machine)
    order = last_order.LastOrder(number=(1, 9), sha256="0" * 64, stage=last_order.Stage.ENDED)
    last_order.write(machine.places, order)
    root_joins(machine, KEY)
    joined(machine, KEY, serial=2)
    take(machine)
    assert last_order.read(machine.places) == order
    root_joins(machine, OTHER)
    joined(machine, OTHER, platform_id="plt_2")
    take(machine)
    assert last_order.read(machine.places) is None


def test_a_machine_that_left_believes_nobody(machine: root_helpers.Machine) -> None:
    seeded(machine)
    seed.forget(machine.places)
    assert trusted.find(machine.places) is None
    seed.forget(machine.places)


def test_while_root_joins_only_what_the_join_tokens_keys_signed_is_believed(
    machine: root_helpers.Machine,
) -> None:
    root_joins(machine, KEY)
    joined(machine, OTHER)
    with pytest.raises(seed.NotSeeded, match="not what root joined"):
        take(machine)
    joined(machine, node_id="web-2")
    with pytest.raises(seed.NotSeeded, match="web-2"):
        take(machine)
    assert trusted.find(machine.places) is None
    joined(machine)
    assert take(machine)


def test_without_a_join_by_root_nothing_is_believed_not_even_the_first(
    machine: root_helpers.Machine,
) -> None:
    joined(machine)
    with pytest.raises(seed.NotSeeded, match="join as root"):
        take(machine)
    assert trusted.find(machine.places) is None


def test_after_leaving_a_made_up_join_seeds_nothing(machine: root_helpers.Machine) -> None:
    seeded(machine)
    seed.forget(machine.places)
    joined(machine, OTHER)
    with pytest.raises(seed.NotSeeded):
        take(machine)
    root_joins(machine)
    with pytest.raises(seed.NotSeeded, match="Only a join token"):
        take(machine)
    assert trusted.find(machine.places) is None
    root_joins(machine, OTHER)
    assert take(machine)


def test_an_enrollment_token_names_no_keys_and_counts_only_where_nobody_was_believed_before(
    machine: root_helpers.Machine,
) -> None:
    root_joins(machine, node_id=None)
    joined(machine)
    assert take(machine)
    root_joins(machine, node_id=None)
    joined(machine, OTHER, platform_id="plt_2")
    with pytest.raises(seed.NotSeeded, match="Only a join token"):
        take(machine)
    assert believed(machine)[0] == "plt_1"


def test_a_damaged_word_of_roots_join_is_no_join(machine: root_helpers.Machine) -> None:
    root_joins(machine, KEY)
    joined(machine)
    machine.places.join_by_root.write_bytes(b"")
    with pytest.raises(places.Damaged):
        take(machine)
    assert trusted.find(machine.places) is None


@pytest.mark.parametrize("name", ["agent.json", "trust.json"])
@pytest.mark.parametrize("trap", ["link", "pipe", "folder", "another's", "cut", "gone"])
def test_a_trap_in_the_agents_folder_leads_root_nowhere(
    machine: root_helpers.Machine, tmp_path: pathlib.Path, name: str, trap: str
) -> None:
    root_joins(machine, KEY)
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
    root_joins(machine, KEY)
    folder = joined(machine)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.raises(seed.NotSeeded):
        take(machine)


def test_a_damaged_set_is_replaced_by_roots_join_alone(machine: root_helpers.Machine) -> None:
    seeded(machine)
    machine.places.trust.write_bytes(b"{")
    with pytest.raises(places.Damaged):
        take(machine)
    root_joins(machine, KEY)
    assert take(machine)
    assert believed(machine) == ("plt_1", "web-1", (1, 1))
