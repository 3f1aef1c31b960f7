"""The docs against the real thing: settings, commands and routes have lines, pages a status."""

import re
from collections.abc import Iterator

import click
import pytest

from operator_cli import main as root
from platform_server.endpoints import access_table
from platform_server.settings import layers
from tests.repo import project

STATUSES = ("Status: live", "Status: proved on fakes only", "Status: not built")
PREFIX = "/api/v1"
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")


def _commands(
    command: click.Command, *, context: click.Context, path: tuple[str, ...] = ()
) -> Iterator[str]:
    """Every command that does something, as a person types it."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None, name
        if not below.hidden:
            yield from _commands(below, context=context, path=(*path, name))


def _sections(page: str) -> Iterator[tuple[str, str]]:
    """The page's headings, each with the text under it."""
    for part in re.split(r"(?m)^#+ ", page)[1:]:
        heading, _, body = part.partition("\n")
        yield heading, body


def _stands_in(page: str, *, setting: str) -> bool:
    section, _, name = setting.partition(".")
    if setting in page:
        return True
    return any(
        re.search(rf"\b{section}\b", heading) and re.search(rf"\b{name}\b", body)
        for heading, body in _sections(page)
    )


def _without_names(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_every_page_opens_with_its_status() -> None:
    odd = [name for name in project.docs() if not project.text(name).startswith(STATUSES)]
    assert odd == []


def test_every_status_stands_alone_on_its_line() -> None:
    lines = {name: project.text(name).partition("\n")[0] for name in project.docs()}
    assert {name: line for name, line in lines.items() if line not in STATUSES} == {}


def test_every_setting_has_a_line_in_the_docs() -> None:
    page = project.text("docs/settings.md")
    assert [name for name in layers.known_names() if not _stands_in(page, setting=name)] == []


def test_every_command_has_a_line_in_the_docs() -> None:
    page = project.text("docs/cli.md")
    command = root.build()
    found = list(_commands(command, context=click.Context(command, info_name="enlist")))
    assert found
    assert [name for name in found if not re.search(rf"\b{name}\b", page)] == []


def test_every_route_has_a_line_in_the_docs() -> None:
    lines = [_without_names(line) for line in project.text("docs/api.md").splitlines()]
    missing = [
        f"{method} {path}"
        for method, path in access_table.ACCESS
        if not any(
            re.search(rf"\b{method}\b", line)
            and re.search(
                rf"{re.escape(_without_names(path.removeprefix(PREFIX)))}(?![\w/{{])", line
            )
            for line in lines
        )
    ]
    assert missing == []


@pytest.mark.parametrize("page", [*project.docs(), "README.md", "bench/README.md"])
def test_no_page_points_at_a_file_that_is_not_there(page: str) -> None:
    folder = (project.ROOT / page).parent
    targets = [match[1] for match in _LINK.finditer(project.text(page))]
    assert [target for target in targets if not (folder / target).exists()] == []


def test_the_list_of_decisions_links_every_decision_once() -> None:
    listed = [match[1] for match in _LINK.finditer(project.text("docs/adr/README.md"))]
    folder = "docs/adr/"
    there = [name.removeprefix(folder) for name in project.docs() if name.startswith(folder)]
    assert sorted(one for one in listed if "/" not in one) == sorted(set(there) - {"README.md"})
