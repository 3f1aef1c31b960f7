"""Which command starts the Agent."""

import pathlib

from worker_agent.settings import paths, starting

WHERE = paths.Paths(folder=pathlib.Path("/var/lib/enlist/worker"))


def unit(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "enlist-agent.service"
    path.write_text(text)
    return path


def test_on_an_installed_machine_it_is_the_units(tmp_path: pathlib.Path) -> None:
    shipped = pathlib.Path(__file__).parents[3] / "systemd/worker/enlist-agent.service"
    path = unit(tmp_path, shipped.read_text())
    assert starting.command(WHERE, unit=path) == "sudo systemctl start enlist-agent.service"


def test_a_unit_of_another_folder_or_none_is_not_ours(tmp_path: pathlib.Path) -> None:
    by_hand = "enlist agent --data-dir /var/lib/enlist/worker"
    assert starting.command(WHERE, unit=tmp_path / "gone") == by_hand
    path = unit(tmp_path, "[Service]\nExecStart=/bin/enlist agent --data-dir /elsewhere\n")
    assert starting.command(WHERE, unit=path) == by_hand
