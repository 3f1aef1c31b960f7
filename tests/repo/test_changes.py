"""Every change has a fragment, every decision a number."""

import re

from tests.repo import project

KINDS = ("added", "changed", "fixed", "removed", "security")
_FRAGMENT = re.compile(rf"^changes/[a-z0-9][a-z0-9-]*\.({'|'.join(KINDS)})\.md$")
_DECISION = re.compile(r"^docs/adr/(\d{4})-[a-z0-9-]+\.md$")
MOST_CHARACTERS = 1000


def _fragments() -> list[str]:
    return [
        name
        for name in project.files()
        if name.startswith("changes/") and name != "changes/README.md"
    ]


def _decisions() -> list[str]:
    return [
        name
        for name in project.files()
        if name.startswith("docs/adr/") and name != "docs/adr/README.md"
    ]


def test_there_is_a_fragment_for_what_is_not_yet_released() -> None:
    assert _fragments()


def test_fragments_are_named_by_subject_and_kind() -> None:
    assert [name for name in _fragments() if not _FRAGMENT.match(name)] == []


def test_a_fragment_is_a_short_paragraph_for_the_reader_of_the_change_log() -> None:
    odd = [
        name
        for name in _fragments()
        if not (1 <= len(project.text(name).strip()) <= MOST_CHARACTERS)
        or project.text(name).startswith("#")
        or not project.text(name).rstrip().endswith(".")
    ]
    assert odd == []


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [match[1] if (match := _DECISION.match(name)) else name for name in _decisions()]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
