"""Which part is made by what, and putting it between its marks."""

import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Final

from scripts.pages import routes, settings, states

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
BEGIN: Final = "<!-- made by scripts/docs: {} -->"
END: Final = "<!-- end of what scripts/docs made -->"

Maker = Callable[[], str]
PAGES: Final[Mapping[str, Mapping[str, Maker]]] = {
    "docs/settings.md": {"settings": settings.text},
    "docs/api.md": {"routes": routes.text, "codes": routes.codes_text},
    "docs/protocol/operations.md": {"operation": states.operation_text},
    "docs/protocol/states.md": {
        "enrollment": states.enrollment_text,
        "node": states.node_text,
        "scheduling": states.scheduling_text,
        "order": states.order_text,
        "machine": states.machine_text,
    },
}


class NoMarks(Exception):
    """The page has no place for a made part: put both marks where it belongs."""


def drifted() -> dict[pathlib.Path, str]:
    """The pages that are not as the code says, each with what it should hold."""
    found: dict[pathlib.Path, str] = {}
    for name, makers in PAGES.items():
        page = ROOT / name
        before = page.read_text(encoding="utf-8")
        after = before
        for part, maker in makers.items():
            after = put(after, part=part, text=maker(), page=name)
        if after != before:
            found[page] = after
    return found


def put(content: str, *, part: str, text: str, page: str) -> str:
    """The page with this text between the part's marks; raises `NoMarks`."""
    begin = BEGIN.format(part)
    place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(END)}", re.DOTALL)
    if len(place.findall(content)) != 1:
        raise NoMarks(f"{page} needs one {begin} and after it {END}")
    filled = f"{begin}\n\n{text.strip()}\n\n{END}"
    return place.sub(lambda _: filled, content)
