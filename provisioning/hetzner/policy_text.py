"""What to set up at Hetzner Cloud, made from the table of calls.

There are two rights, read and read & write, and a token has one of them for a whole project; so the
least privilege is a project of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from provisioning import contract
from provisioning.hetzner import calls

EVERYTHING: Final = tuple(contract.Feature)
_PROJECTS: Final = "https://console.hetzner.com/projects"


def rights(features: Iterable[contract.Feature]) -> tuple[str, ...]:
    """The rights that these features need, the widest last."""
    wanted = frozenset(features)
    needed = {call.right for call in calls.ALL if call.feature in wanted and call.right}
    return tuple(one for one in ("read", "read & write") if one in needed)


def least_privilege(features: Iterable[contract.Feature]) -> Mapping[str, list[str]]:
    """The calls that will be made for these features, by the right each needs."""
    wanted = frozenset(features)
    return {
        right: sorted({c.name for c in calls.ALL if c.feature in wanted and c.right == right})
        for right in rights(wanted)
    }


def setup_text(facts: Mapping[str, str]) -> str:
    """What a person does there, step by step."""
    del facts
    widest = rights(EVERYTHING)[-1]
    return (
        f"1. Make a project for these machines alone at {_PROJECTS}: a token reaches everything "
        "in its project, and nothing beyond it.\n"
        f"2. In it: Security, API tokens, Generate: {widest.title()}.\n"
        "3. Give the token to `enlist cloud connections save`; it is shown to nobody again.\n"
        "The provider has no finer rights, no expiry and no federation: renew the token by hand "
        "(save the connection again with the new one, then delete the old one there).\n"
    )
