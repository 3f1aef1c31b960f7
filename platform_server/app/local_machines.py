"""What the Platform does for machines on its own host, the provider `local`.

They stand on a bridge of their own (`[local] network`), whose first address is this host's: the
Platform listens there, its certificates name it, and first-boot data of local machines names it,
since a laptop's other addresses come and go. Only where such machines can be made and install
something: by root or with the root helper, with an enrollment port and a bundle port.
"""

import os
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.app import addresses
from platform_server.settings import groups
from provisioning.local import bridge, hands

PROVIDERS: Final = ("local-nspawn", "local-qemu")


def address(settings: groups.Settings) -> str | None:
    """This host's address on the bridge; None where no local machine is ever made."""
    if settings.local.network == "off" or not settings.dispatch_enabled:
        return None
    if settings.bundles.port is None or not can_make():
        return None
    return bridge.address_of(settings.local.network)


def can_make() -> bool:
    """Whether anything here can act as root."""
    return os.geteuid() == 0 or hands.SOCKET.exists()


def seen_from(provider: str, url: str, *, bridge: str | None) -> str:
    """An address of this Platform, as machines of that provider reach it."""
    if bridge is None or provider not in PROVIDERS:
        return url
    return addresses.url("https", host=bridge, port=urllib.parse.urlsplit(url).port or 443)


def gateway_near(url: str, *, bridge: str | None, gateways: Sequence[str]) -> str | None:
    """The gateway for a machine whose ticket names `url`; None where it is the same as for all.

    A statement names no bridge: it is read by every node, and leads nowhere from any other host.
    Known limit: a local machine that joins anew with a person's token is told of it no more.
    """
    if bridge is None or not gateways or urllib.parse.urlsplit(url).hostname != bridge:
        return None
    return seen_from(PROVIDERS[0], gateways[0], bridge=bridge)


def shared(settings: groups.Settings) -> Mapping[str, Mapping[str, Any]]:
    """What drivers of local machines are opened with, by provider."""
    if settings.local.network == "off":
        return {}
    given = {
        "network": str(settings.local.network),
        "directory": settings.local.directory,
        "images": settings.local.images,
        "bridge": settings.local.bridge,
    }
    return dict.fromkeys(PROVIDERS, given)
