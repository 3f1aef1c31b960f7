"""What to set up at DigitalOcean, made from the table of calls.

A token's scopes are chosen one by one and cannot be asked for afterwards; so the text lists exactly
those that the calls need, and the check tries the reading ones.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from provisioning import contract
from provisioning.digitalocean import calls

EVERYTHING: Final = tuple(contract.Feature)
_TOKENS: Final = "https://cloud.digitalocean.com/account/api/tokens"


def scopes(features: Iterable[contract.Feature]) -> tuple[str, ...]:
    """The scopes that these features need, tagging included."""
    wanted = frozenset(features)
    needed = {call.right for call in calls.ALL if call.feature in wanted and call.right}
    return tuple(sorted({*needed, *calls.ALONGSIDE}))


def setup_text(facts: Mapping[str, str]) -> str:
    """What a person does there, step by step."""
    del facts
    return (
        f"1. At {_TOKENS}: Generate New Token, Custom Scopes, an expiry that you will remember.\n"
        f"2. Choose these scopes and no others: {', '.join(scopes(EVERYTHING))}.\n"
        "3. Give the token to `enlist cloud connections save`; it is shown to nobody again.\n"
        "DigitalOcean has no federation: renew the token by hand before it expires (save the "
        "connection again with the new one, then delete the old one there). A team of its own "
        "for these machines keeps the token away from everything else.\n"
    )
