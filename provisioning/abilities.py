"""What each provider's driver can do beyond the core, told without loading its SDK.

The drivers declare the same, and one contract test holds both to each other. What a provider lacks
is refused when it is asked for, before anything is stored or sent.
"""

from collections.abc import Mapping
from typing import Final

from provisioning import contract

_C = contract.Capability
_KEPT: Final = frozenset({_C.VOLUMES, _C.SNAPSHOTS, _C.ADDRESSES})
_HERE: Final = frozenset({_C.CONSOLE, _C.REBOOT})
_USUAL: Final = frozenset({_C.CUSTOM_IMAGE, _C.REBOOT, _C.SSH_KEY})
_LARGE: Final = _KEPT | _USUAL | {_C.FEDERATION, _C.NESTED_VIRT, _C.NETWORKS}

ALL: Final[Mapping[str, frozenset[contract.Capability]]] = {
    "local-nspawn": _HERE,
    "local-qemu": _HERE,
    "hetzner": _KEPT | _USUAL | {_C.NETWORKS, _C.PRICE},
    "digitalocean": _KEPT | _USUAL | {_C.NETWORKS, _C.PRICE},
    "aws": _LARGE | {_C.CONSOLE},
    "azure": _LARGE,
    "gcp": _LARGE | {_C.CONSOLE},
    "upcloud": _KEPT | _USUAL | {_C.PRICE},
    "linode": _USUAL | {_C.PRICE},
    "vultr": frozenset({_C.PRICE, _C.REBOOT}),
    "openstack": frozenset({_C.CUSTOM_IMAGE, _C.NETWORKS, _C.REBOOT}),
}
WORDS: Final[Mapping[contract.Capability, str]] = {
    _C.ADDRESSES: "stable addresses",
    _C.CONSOLE: "a console that can be read",
    _C.CUSTOM_IMAGE: "images other than the tested ones",
    _C.FEDERATION: "credentials without a long-lived secret",
    _C.NESTED_VIRT: "sizes that run virtual machines themselves",
    _C.NETWORKS: "networks to choose from",
    _C.PRICE: "prices told by the provider",
    _C.REBOOT: "a restart",
    _C.SNAPSHOTS: "snapshots",
    _C.SSH_KEY: "SSH keys of a person's own",
    _C.VOLUMES: "volumes",
}


class Lacking(Exception):
    """The provider does not have what is asked for; the message is a sentence."""


def require(provider: str, capability: contract.Capability) -> None:
    """Returns where the provider (by its full name) can do that.

    Raises:
        Lacking: it cannot, or Enlist cannot do it there.
    """
    able = ALL.get(provider, frozenset())
    if capability in able:
        return
    having = ", ".join(name for name, can in ALL.items() if capability in can)
    raise Lacking(
        f"Enlist has no {WORDS[capability].removeprefix('a ')} at {provider}, only at: {having}."
    )
