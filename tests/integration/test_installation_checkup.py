"""An installed tree, damaged one way at a time: each damage is named, classed, with its command."""

import pathlib

import pytest

from tests.support import installed_tree


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> installed_tree.Tree:
    made = installed_tree.install(tmp_path / "machine")
    made.join()
    return made


def test_an_installation_as_it_was_made_has_nothing_wrong(tree: installed_tree.Tree) -> None:
    assert tree.wrong() == {}
