"""What to set up at UpCloud, made from the table of calls.

A sub-account that sees only a part of the account would take what it cannot see for absent; so it
is given all servers, storages and addresses, and nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from provisioning import contract
from provisioning.upcloud import calls

EVERYTHING: Final = tuple(contract.Feature)


def permissions(features: Iterable[contract.Feature]) -> tuple[str, ...]:
    """What a sub-account must be permitted for these features."""
    wanted = frozenset(features)
    return tuple(
        sorted({call.right for call in calls.ALL if call.feature in wanted and call.right})
    )


def setup_text(facts: Mapping[str, str]) -> str:
    """What a person does there, step by step."""
    del facts
    return (
        "1. In UpCloud's control panel: People, create a sub-account for the API alone, without "
        "access to the control panel.\n"
        f"2. Permit it, for all that is there and will be: {'; '.join(permissions(EVERYTHING))}. "
        "Permissions for single servers would hide the others, and what is hidden looks gone.\n"
        "3. As this sub-account make an API token with an expiry, allowed from the Platform's own "
        "addresses.\n"
        "4. Give it to `enlist cloud connections save` (kind upcloud-token); it is shown to nobody "
        "again. The setting `currency` is that of the account (EUR unless you say otherwise).\n"
        "UpCloud has no federation: renew the token by hand before it expires.\n"
    )
