"""The firewall is never touched silently: said always, run when asked to, recorded before it is."""

import argparse
import io
import pathlib
from collections.abc import Sequence

import pytest

from installer import command, firewall
from installer import layout as layout_kit
from installer import progress as progress_kit
from installer import receipt as receipt_kit


class Firewall:
    """A firewall that writes down what was run, and what the receipt said by then."""

    def __init__(self, layout: layout_kit.Layout) -> None:
        self._layout = layout
        self.open: set[int] = set()
        self.run: list[tuple[str, bool]] = []

    def openings(self, ports: Sequence[int]) -> list[receipt_kit.Opened]:
        return [
            receipt_kit.Opened(tool="ufw", done=("open", str(port)), undo=("close", str(port)))
            for port in ports
        ]

    def is_open(self, opened: receipt_kit.Opened) -> bool:
        return int(opened.done[1]) in self.open

    def open_port(self, opened: receipt_kit.Opened) -> None:
        receipt = receipt_kit.find(self._layout.receipt)
        assert receipt is not None
        self.run.append((" ".join(opened.done), opened in receipt.firewall))


def a_layout(tmp_path: pathlib.Path, role: layout_kit.Role) -> layout_kit.Layout:
    layout = layout_kit.system(role, prefix=tmp_path)
    layout.root.mkdir(parents=True)
    receipt_kit.write(
        receipt_kit.Receipt(
            role=role, version="0.1.0", release="r", prefix=tmp_path, data_dir=layout.data_dir,
            account=layout.account, link=layout.link, installed_at="", updated_at="",
        ),
        layout=layout,
    )  # fmt: skip
    return layout


def go(
    monkeypatch: pytest.MonkeyPatch,
    layout: layout_kit.Layout,
    *,
    open_firewall: bool,
    join: Sequence[str] = (),
    already: Sequence[int] = (),
) -> tuple[Firewall, str]:
    wall = Firewall(layout)
    wall.open.update(already)
    for name in ("openings", "is_open", "open_port"):
        monkeypatch.setattr(firewall, name, getattr(wall, name))
    said = io.StringIO()
    command._firewall(
        argparse.Namespace(open_firewall=open_firewall, join=list(join)),
        layout,
        progress_kit.Progress(stream=said),
    )
    return wall, said.getvalue()


def test_the_command_is_said_and_not_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = a_layout(tmp_path, layout_kit.Role.PLATFORM)
    wall, said = go(monkeypatch, layout, open_firewall=False)
    assert wall.run == []
    assert [line.rpartition(": ")[2] for line in said.splitlines()] == [
        "open 8444", "open 8445", "open 8446"
    ]  # fmt: skip


def test_asked_to_it_is_run_and_stands_in_the_receipt_before(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = a_layout(tmp_path, layout_kit.Role.PLATFORM)
    wall, said = go(monkeypatch, layout, open_firewall=True)
    assert wall.run == [("open 8444", True), ("open 8445", True), ("open 8446", True)]
    assert said.count("Opening the firewall: open") == 3


def test_a_rule_of_the_administrators_own_is_not_ours_to_remove(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = a_layout(tmp_path, layout_kit.Role.PLATFORM)
    wall, _ = go(monkeypatch, layout, open_firewall=True, already=[8444, 8446])
    assert wall.run == [("open 8445", True)]
    receipt = receipt_kit.find(layout.receipt)
    assert receipt is not None
    assert [one.undo for one in receipt.firewall] == [("close", "8445")]


WORKERS = {
    "one that dials out": ((), False, []),
    "one that listens": (("--address", "10.0.0.5"), False, ["open 8443"]),
    "one that listens, in one word": (("--address=10.0.0.5",), False, ["open 8443"]),
    "one that listens on another port": (
        ("--address", "10.0.0.5", "--port", "9443"), False, ["open 9443"],
    ),
    "one whose port is asked for": ((), True, ["open 8443"]),
}  # fmt: skip


@pytest.mark.parametrize("what", WORKERS)
def test_the_port_of_a_worker(
    what: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join, asked, expected = WORKERS[what]
    layout = a_layout(tmp_path, layout_kit.Role.WORKER)
    _, said = go(monkeypatch, layout, open_firewall=asked, join=join)
    assert [line.rpartition(": ")[2] for line in said.splitlines()] == expected
