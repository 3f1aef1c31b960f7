"""What the fake Azure lets be made and ended, and with which right.

These are Azure's documented rules and what the recorded sessions show: a card needs its subnet, its
group and its address done; a machine needs a card of its own region and a way to log in; what is
in use is not deleted.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.support.clouds import azure_subscription
from tests.support.clouds import azure_things as things

if TYPE_CHECKING:
    from tests.support.clouds import azure

IMAGES: Final = ("Debian:debian-12:12:latest", "Canonical:ubuntu-24_04-lts:server-gen1:latest")
MOST_CUSTOM_DATA: Final = 65_535
_ACTIONS: Final = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}


# --- rights -------------------------------------------------------------------------------------


def right_of(method: str, kind: str, verb: str | None) -> str:
    """The right that a route needs."""
    return f"{kind}{verb}/action" if verb else f"{kind}/{_ACTIONS[method]}"


def linked_rights(kind: str, body: Mapping[str, Any]) -> Iterable[str]:
    """What is needed on the things that a body names."""
    about = body.get("properties", {})
    if kind == things.VM:
        yield f"{things.NIC}/join/action"
        yield f"{things.DISK}/write"
    if kind == things.NIC:
        if "networkSecurityGroup" in about:
            yield f"{things.GROUP}/join/action"
        for one in about["ipConfigurations"]:
            yield f"{things.NETWORK}/subnets/join/action"
            if "publicIPAddress" in one["properties"]:
                yield f"{things.ADDRESS}/join/action"


def grants(grant: Mapping[str, list[str]], right: str) -> bool:
    """Whether this role gives it: actions less their exceptions, `*` for anything."""

    def fits(patterns: Iterable[str]) -> bool:
        return any(
            re.fullmatch(re.escape(one).replace(r"\*", ".*"), right, re.IGNORECASE)
            for one in patterns
        )

    return fits(grant["actions"]) and not fits(grant["notActions"])


# --- what a thing needs -------------------------------------------------------------------------


def check(
    cloud: "azure.Azure",
    kind: str,
    name: str,
    body: Mapping[str, Any],
    *,
    there: things.Resource | None,
) -> None:
    """Refuses what cannot be made."""
    if body.get("location") not in azure_subscription.REGIONS:
        raise things.Refused(
            "LocationNotAvailableForResourceType", f"Not in {body.get('location')}."
        )
    if len(name) > 80 or (kind == things.VM and len(name) > 64):
        raise things.Refused("InvalidResourceName", f"{name} is too long.")
    if kind == things.NIC:
        _check_card(cloud, body)
    if kind == things.VM:
        _check_machine(cloud, body, there=there)


def _check_card(cloud: "azure.Azure", body: Mapping[str, Any]) -> None:
    about = body["properties"]
    named = [about["networkSecurityGroup"]["id"]] if "networkSecurityGroup" in about else []
    for one in about["ipConfigurations"]:
        inside = one["properties"]
        if "publicIPAddress" in inside:
            named.append(inside["publicIPAddress"]["id"])
        subnet = inside["subnet"]["id"]
        network, _, wanted = subnet.partition("/subnets/")
        known = _named(cloud, network, body)
        if wanted not in [one["name"] for one in known.body["properties"]["subnets"]]:
            raise things.Refused("InvalidResourceReference", f"{subnet} is not there.")
    for ref in named:
        _named(cloud, ref, body)


def _check_machine(
    cloud: "azure.Azure", body: Mapping[str, Any], *, there: things.Resource | None
) -> None:
    about = body["properties"]
    size = about["hardwareProfile"]["vmSize"]
    region = body["location"]
    if size not in azure_subscription.SIZES:
        raise things.Refused(
            "InvalidParameter", f"The value {size} for the things.VM size is not valid."
        )
    if (size, region) in cloud.subscription.restricted:
        raise things.Refused("SkuNotAvailable", f"The requested size {size} is not available.")
    image = about["storageProfile"]["imageReference"]
    urn = ":".join(image.get(part, "") for part in ("publisher", "offer", "sku", "version"))
    if "id" not in image and urn not in IMAGES:
        raise things.Refused("PlatformImageNotFound", f"The platform image {urn} is not available.")
    system = about["osProfile"]
    keys = system.get("linuxConfiguration", {}).get("ssh", {}).get("publicKeys", [])
    if not keys and "adminPassword" not in system:
        words = "Authentication using either SSH or by user name and password must be enabled."
        raise things.Refused("InvalidParameter", words)
    if there is not None and about.get("osProfile", {}).get("customData"):
        raise things.Refused("PropertyChangeNotAllowed", "Changing customData is not allowed.")
    if len(custom_data(body)) > MOST_CUSTOM_DATA:
        raise things.Refused("InvalidParameter", "Custom data is longer than 65535 bytes.")
    for card in about["networkProfile"]["networkInterfaces"]:
        nic = _named(cloud, card["id"], body)
        user = nic.body["properties"].get("virtualMachine")
        if user is not None and there is None:
            raise things.Refused("NicInUse", f"{nic.name} is used by {user['id']}.")
    cores, left = azure_subscription.SIZES[size][0], cores_left(cloud, region)
    if there is None and cores > left:
        words = f"Results in exceeding approved Total Regional Cores quota. Left: {left}."
        raise things.Refused("OperationNotAllowed", words)


def custom_data(body: Mapping[str, Any]) -> bytes:
    """What cloud-init is handed: decoded once, whatever comes out."""
    told = body["properties"]["osProfile"].get("customData", "")
    try:
        return base64.b64decode(told, validate=True)
    except binascii.Error:
        raise things.Refused("InvalidParameter", "Custom data is not in base64.") from None


def cores_left(cloud: "azure.Azure", region: str) -> int:
    """How many more cores fit."""
    here = [one for one in cloud.of(things.VM) if one.body["location"] == region]
    used = sum(azure_subscription.SIZES[size_of(one)][0] for one in here)
    cloud.subscription.cores_used[region] = used
    cloud.subscription.machines_used[region] = len(here)
    return cloud.subscription.cores - used


def _named(cloud: "azure.Azure", ref: str, body: Mapping[str, Any]) -> things.Resource:
    one = cloud.held.get(ref.lower())
    if one is None:
        raise things.Refused("InvalidResourceReference", f"{ref} is not there.")
    if one.state != "Succeeded":
        raise things.Refused("ReferencedResourceNotProvisioned", f"{ref} is in state {one.state}.")
    if one.body["location"] != body["location"]:
        raise things.Refused("InvalidResourceReference", f"{ref} is in another location.")
    return one


def holder(cloud: "azure.Azure", one: things.Resource) -> tuple[str, str] | None:
    """Code and words of why it cannot be deleted yet."""
    about = one.body["properties"]
    if one.kind == things.NIC and "virtualMachine" in about:
        return "NicInUse", f"{one.name} is used by {about['virtualMachine']['id']}."
    if one.kind == things.ADDRESS and "ipConfiguration" in about:
        return "PublicIPAddressCannotBeDeleted", f"{one.name} is allocated to a card."
    if one.kind == things.DISK and "managedBy" in one.body:
        return "OperationNotAllowed", f"Disk {one.name} is attached to {one.body['managedBy']}."
    if one.kind == things.GROUP:
        for nic in cloud.of(things.NIC):
            if nic.body["properties"].get("networkSecurityGroup", {}).get("id") == one.ref:
                return "InUseNetworkSecurityGroupCannotBeDeleted", f"Used by {nic.name}."
    return None


def size_of(one: things.Resource) -> str:
    """A machine's size."""
    return str(one.body["properties"]["hardwareProfile"]["vmSize"])
