"""The receipt: what it says, who may read it, and what is refused."""

import json
import pathlib
import stat
from typing import Any

import pytest

from installer import layout as layout_kit
from installer import receipt as receipt_kit


def a_receipt(layout: layout_kit.Layout) -> receipt_kit.Receipt:
    return receipt_kit.Receipt(
        role=layout.role,
        version="0.1.0",
        release="0.1.0-0123456789ab",
        prefix=layout.prefix,
        data_dir=layout.data_dir,
        account=layout.account,
        link=layout.link,
        installed_at="2026-01-01T00:00:00Z",
        updated_at="2026-01-02T00:00:00Z",
        accounts=("enlist-worker",),
        files=("/usr/local/bin/enlist",),
        units=("enlist-agent.service",),
        firewall=(receipt_kit.Opened(tool="ufw", done=("ufw", "allow"), undo=("ufw", "delete")),),
        packages=("python3",),
    )


@pytest.fixture
def layout(tmp_path: pathlib.Path) -> layout_kit.Layout:
    places = layout_kit.system(layout_kit.Role.WORKER, prefix=tmp_path / "enlist")
    places.root.mkdir(parents=True)
    return places


def test_it_is_read_as_it_was_written_and_by_everybody(layout: layout_kit.Layout) -> None:
    receipt = a_receipt(layout)
    receipt_kit.write(receipt, layout=layout)
    assert receipt_kit.find(layout.receipt) == receipt
    assert stat.S_IMODE(layout.receipt.stat().st_mode) == 0o644


def test_the_places_that_it_names_are_those_it_was_written_for(layout: layout_kit.Layout) -> None:
    assert receipt_kit.layout_of(a_receipt(layout), system=True, environment={}) == layout


def test_without_one_there_is_none(tmp_path: pathlib.Path) -> None:
    assert receipt_kit.find(tmp_path / "receipt.json") is None


def test_what_is_added_twice_stands_once(layout: layout_kit.Layout) -> None:
    receipt = a_receipt(layout).adding(
        units=["enlist-agent.service", "enlist-join.service"],
        files=[layout.link, layout.receipt],
        packages=["python3"],
    )
    assert receipt.units == ("enlist-agent.service", "enlist-join.service")
    assert receipt.files == ("/usr/local/bin/enlist", str(layout.receipt))
    assert receipt.packages == ("python3",)


SPOILED: dict[str, dict[str, Any]] = {
    "a newer format": {"format": 2},
    "no role": {"role": None},
    "an unknown role": {"role": "king"},
    "a relative prefix": {"prefix": "opt/enlist"},
    "the root as its prefix": {"prefix": "/"},
    "a prefix that climbs": {"prefix": "/opt/../etc"},
    "a data directory that is the root": {"data_dir": "/"},
    "files that are no list": {"files": "/etc"},
    "a file that is no text": {"files": [1]},
    "a firewall of words": {"firewall": ["ufw"]},
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_one_is_refused(what: str, layout: layout_kit.Layout) -> None:
    document = {**a_receipt(layout).to_document(), **SPOILED[what]}
    layout.receipt.write_text(json.dumps(document))
    with pytest.raises(receipt_kit.Unreadable):
        receipt_kit.find(layout.receipt)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\0" * 10])
def test_what_is_no_receipt_is_refused(content: str, layout: layout_kit.Layout) -> None:
    layout.receipt.write_text(content)
    with pytest.raises(receipt_kit.Unreadable):
        receipt_kit.find(layout.receipt)


def test_the_script_reads_its_lists_from_one_line_an_entry(layout: layout_kit.Layout) -> None:
    # install.sh reads `packages` and `folders` by sed, when no Python is left to do it.
    receipt_kit.write(a_receipt(layout), layout=layout)
    lines = layout.receipt.read_text().splitlines()
    at = lines.index('  "packages": [')
    assert lines[at + 1 : at + 3] == ['    "python3"', "  ],"]
