"""Units are those of the release, for the places that were chosen."""

import pathlib

import pytest

from installer import layout as layout_kit
from installer import units
from tests.repo import project

WORKER = layout_kit.Role.WORKER
TEXT = (
    "[Service]\nExecStart=/opt/enlist/worker/current/bin/enlist agent "
    "--data-dir /var/lib/enlist/worker\nReadWritePaths=/var/lib/enlist/worker\n"
)


def test_with_the_default_places_nothing_is_replaced() -> None:
    assert units.render(TEXT, layout=layout_kit.system(WORKER)) == TEXT


@pytest.mark.parametrize("data", ["/srv/data", "/opt/enlist/data", "/var/lib/enlist/worker/deeper"])
def test_other_places_are_put_in(data: str) -> None:
    layout = layout_kit.system(
        WORKER, prefix=pathlib.Path("/srv/enlist"), data_dir=pathlib.Path(data)
    )
    assert units.render(TEXT, layout=layout) == (
        "[Service]\nExecStart=/srv/enlist/worker/current/bin/enlist agent "
        f"--data-dir {data}\nReadWritePaths={data}\n"
    )


def test_the_shipped_units_are_what_is_put_in_place(tmp_path: pathlib.Path) -> None:
    layout = layout_kit.system(WORKER, prefix=tmp_path)
    folder = layout.release("r") / "systemd" / "worker"
    folder.mkdir(parents=True)
    shipped = sorted((project.ROOT / "systemd" / "worker").iterdir())
    for path in shipped:
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "README").write_text("not a unit")
    found = units.of_release(layout, "r")
    assert [unit.name for unit in found] == [path.name for path in shipped]
    assert all(str(layout_kit.DEFAULT_PREFIX) not in unit.text for unit in found)


def test_what_starts_at_boot_is_what_says_so() -> None:
    assert units.Unit(name="a.service", text="[Unit]\n[Install]\nWantedBy=x\n").enabled
    assert not units.Unit(name="a.service", text="[Unit]\n# [Install]\n").enabled


def test_a_plain_user_has_none(tmp_path: pathlib.Path) -> None:
    layout = layout_kit.rootless(WORKER, prefix=tmp_path, environment={})
    (layout.release("r") / "systemd" / "worker").mkdir(parents=True)
    assert units.of_release(layout, "r") == []


def test_links_to_units_whose_files_are_gone_go_and_those_of_others_stay(
    tmp_path: pathlib.Path,
) -> None:
    shared, alone = tmp_path / "multi-user.target.wants", tmp_path / "x.target.requires"
    for folder in (shared, alone):
        folder.mkdir()
        (folder / "enlist-helper.service").symlink_to("/gone/enlist-helper.service")
    (shared / "ssh.service").symlink_to("/lib/systemd/system/ssh.service")
    (tmp_path / "enlist-helper.service").write_text("not a link below *.wants")
    units.remove_links(tmp_path, ["enlist-helper.service", "enlist-agent.path"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "enlist-helper.service", "multi-user.target.wants", "ssh.service"
    ]  # fmt: skip
