"""What to set up for the providers of the long tail, by the kind of credential they take."""

from collections.abc import Mapping
from typing import Final

from provisioning import credentials

_LINODE: Final = (
    "1. At https://cloud.linode.com/profile/tokens: Create a Personal Access Token with an expiry; "
    "Linodes: Read/Write, Account: Read Only, Images: Read Only, everything else: No Access.\n"
)
_VULTR: Final = (
    "1. At https://my.vultr.com/settings/#settingsapi: make a sub-user with the permissions "
    "Provisioning and Manage Servers, enable its API key, and let in the Platform's own addresses "
    "alone.\n"
)
_OPENSTACK: Final = (
    "1. In the project for these machines: openstack application credential create enlist "
    "--role member (it holds for this project alone; do not add --unrestricted).\n"
)
_LAST: Final = (
    "2. Give it to `enlist cloud connections save`; it is shown to nobody again.\n"
    "There is no federation here: renew it by hand (save the connection again with the new one, "
    "then delete the old one there).\n"
)


def setup_text(facts: Mapping[str, str]) -> str:
    """What a person does there, step by step."""
    if facts.get("kind") == credentials.Kind.OPENSTACK_APPLICATION:
        return _OPENSTACK + _LAST
    return {"linode": _LINODE, "vultr": _VULTR}.get(facts.get("provider", ""), "") + _LAST
