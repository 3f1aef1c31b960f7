"""What docs/ says of settings, routes and states is what the code says, to the letter."""

import re

from scripts.pages import made
from tests.repo import project


def test_every_made_part_of_the_docs_is_as_the_code_says() -> None:
    # `scripts/docs` writes them anew.
    assert [str(page.relative_to(project.ROOT)) for page in made.drifted()] == []


def test_every_page_with_a_mark_is_one_that_the_script_makes() -> None:
    begin = made.BEGIN.partition("{")[0]
    assert {name for name in project.docs() if begin in project.text(name)} == set(made.PAGES)


def test_a_part_is_put_between_its_marks_and_nothing_else_changes() -> None:
    page = f"Before\n{made.BEGIN.format('x')}\nold\n{made.END}\nAfter\n"
    assert made.put(page, part="x", text="new", page="page") == (
        f"Before\n{made.BEGIN.format('x')}\n\nnew\n\n{made.END}\nAfter\n"
    )


def test_every_metric_has_a_line_in_the_docs() -> None:
    names = re.findall(r'"(enlist_[a-z_]+)"', project.text("platform_server/endpoints/measures.py"))
    assert names
    page = project.text("docs/operating.md")
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_every_message_that_operating_explains_is_one_that_the_code_has() -> None:
    # Implicitly joined literals are joined here too.
    sources = "\n".join(project.text(name) for name in project.modules(*project.PACKAGES))
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)
    _, _, part = project.text("docs/operating.md").partition("\n## When something does not work")
    rows = re.findall(r"(?m)^\| (.+?) \|", part)
    pieces = [
        piece.strip(" …")
        for row in rows
        for message in re.findall(r"`([^`]+)`", row)
        for piece in message.split("…")
    ]
    assert pieces
    assert [piece for piece in pieces if piece and piece not in joined] == []
