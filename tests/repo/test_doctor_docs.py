"""Everything that doctor asks of an installation has its row in docs/operating.md."""

import re

from installer.checkup import checkup
from tests.repo import project

# One question that gives findings under names of its own, as the row has them.
_ROWS = {"account": "account.…", "unit": "unit.…", "firewall": "firewall.<port>"}


def test_every_question_of_an_installation_has_its_row() -> None:
    page = project.text("docs/operating.md")
    _, _, after = page.partition("| On an installed machine")
    table, _, _ = after.partition("\n\n")
    told = set(
        re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))
    )
    assert {_ROWS.get(name, name) for name in checkup.questions()} <= told
