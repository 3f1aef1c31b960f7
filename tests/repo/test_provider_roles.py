"""The roles that the pages of Azure and Google print are those that their tables of calls make."""

import re

import pytest

from provisioning.azure import policy_text as azure
from provisioning.gcp import policy_text as gcp
from tests.repo import project

ROLES = {
    "azure": [list(role["Actions"]) for role in azure.least_privilege().values()],
    "gcp": [list(gcp.least_privilege()["includedPermissions"])],
}


@pytest.mark.parametrize("name", sorted(ROLES))
def test_the_page_prints_the_rights_that_the_driver_needs_and_no_others(name: str) -> None:
    text = (project.ROOT / "docs" / "providers" / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    printed = [block.split() for block in blocks if "$" not in block]
    assert printed == ROLES[name]
