"""What Azure tells of machines and their parts, read into the contract's values.

Owners are read from tags and from nothing else; a name proves nothing. References are written one
way, whatever case Azure chose for them today.

Known limit: Azure tells no price; what a thing costs comes from the catalogue's dated table.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import answers, contract, naming
from provisioning.azure import calls, errors, places

_POWER: Final[Mapping[str, contract.Power]] = {
    "starting": contract.Power.STARTING,
    "running": contract.Power.RUNNING,
    "stopping": contract.Power.STOPPING,
    "stopped": contract.Power.OFF,  # and billed
    "deallocating": contract.Power.STOPPING,
    "deallocated": contract.Power.OFF,  # disk and address are billed yet
}
_PROVISIONING: Final[Mapping[str, contract.Power]] = {
    "creating": contract.Power.STARTING,
    "updating": contract.Power.RUNNING,
    "succeeded": contract.Power.RUNNING,
    "failed": contract.Power.FAILED,
    "canceled": contract.Power.FAILED,
    "deleting": contract.Power.DELETING,
}

Body = Mapping[str, Any]


def instance_of(vm: Body, *, place: places.Place) -> contract.Instance:
    """A machine without what hangs on it. Raises `Fault`, `UNKNOWN`, where it has no name."""
    if not text(vm, "name"):
        raise answers.unanswered("A machine", "an answer without what it should hold")
    about = inside(vm, "properties")
    provisioning, power, failure = _status(vm)
    return contract.Instance(
        ref=place.one(calls.VM, text(vm, "name")),
        name=text(vm, "name"),
        region=text(vm, "location"),
        power=_power_of(provisioning, power, failure),
        raw_state=power or provisioning,
        owner=naming.owner_of(tags(vm)),
        size=text(inside(about, "hardwareProfile"), "vmSize"),
        image=_image_of(inside(inside(about, "storageProfile"), "imageReference")),
        created_at=moment(about.get("timeCreated")),
        failure=": ".join(one for one in failure if one) if failure else None,
        failure_code=failure[0] if failure else "",
        instance_id=text(about, "vmId") or None,
    )


def disk_refs(vm: Body, *, place: places.Place) -> tuple[str | None, tuple[str, ...]]:
    """The reference of its own disk, and those of volumes that are attached."""
    storage = inside(inside(vm, "properties"), "storageProfile")
    own = inside(storage, "osDisk")
    ref = text(inside(own, "managedDisk"), "id")
    if not ref and text(own, "name"):
        ref = place.one(calls.DISK, text(own, "name"))
    attached = (text(inside(one, "managedDisk"), "id") for one in rows(storage, "dataDisks"))
    return known(ref, place=place), tuple(
        told for told in (known(one, place=place) for one in attached) if told is not None
    )


def interface_refs(vm: Body, *, place: places.Place) -> tuple[str, ...]:
    """The references of its network cards."""
    cards = rows(inside(inside(vm, "properties"), "networkProfile"), "networkInterfaces")
    told = (known(text(one, "id"), place=place) for one in cards)
    return tuple(one for one in told if one is not None)


def address_refs(nic: Body, *, place: places.Place) -> tuple[str, ...]:
    """The references of a card's public addresses."""
    about = (inside(one, "properties") for one in rows(inside(nic, "properties"), _CONFIGURATIONS))
    told = (known(text(inside(one, "publicIPAddress"), "id"), place=place) for one in about)
    return tuple(one for one in told if one is not None)


def private_addresses(nic: Body) -> tuple[str, ...]:
    """A card's addresses in its network."""
    about = (inside(one, "properties") for one in rows(inside(nic, "properties"), _CONFIGURATIONS))
    return tuple(text(one, "privateIPAddress") for one in about if text(one, "privateIPAddress"))


def child_of(
    thing: Body,
    *,
    kind: str,
    place: places.Place,
    attached_to: str | None = None,
    child_kind: contract.ChildKind | None = None,
) -> contract.Child:
    """A disk, a snapshot, an address, a card or a group."""
    about = inside(thing, "properties")
    size = about.get("diskSizeGB")
    return contract.Child(
        kind=child_kind or places.KINDS[kind],
        ref=place.one(kind, text(thing, "name")),
        name=text(thing, "name"),
        region=text(thing, "location"),
        keep=_stays(about, child_kind or places.KINDS[kind]),
        attached_to=attached_to or holder_of(thing, place=place),
        owner=naming.owner_of(tags(thing)),
        size_gigabytes=size if isinstance(size, int) else None,
        address=text(about, "ipAddress") or None,
        created_at=moment(about.get("timeCreated")),
    )


def kind_of_disk(disk: Body) -> contract.ChildKind:
    """A machine's own disk has a system on it, a volume has none."""
    is_own = bool(text(inside(disk, "properties"), "osType"))
    return contract.ChildKind.DISK if is_own else contract.ChildKind.VOLUME


def holder_of(thing: Body, *, place: places.Place) -> str | None:
    """The machine that has it, where Azure says so of the thing itself."""
    about = inside(thing, "properties")
    told = text(thing, "managedBy") or text(inside(about, "virtualMachine"), "id")
    return known(told, place=place)


def card_of_address(thing: Body, *, place: places.Place) -> str | None:
    """The network card that has an address: the first part of the id of its configuration."""
    told = text(inside(inside(thing, "properties"), "ipConfiguration"), "id")
    return known(told.partition("/ipConfigurations/")[0], place=place)


def known(ref: str, *, place: places.Place) -> str | None:
    """The reference as we write it; None where it leads out of the resource group."""
    try:
        return place.same(ref)
    except ValueError:
        return None


def tags(thing: Body) -> Mapping[str, str]:
    """Its tags; values that are no text are left out."""
    told = inside(thing, "tags")
    return {name: value for name, value in told.items() if isinstance(value, str)}


def inside(thing: Body, name: str) -> Body:
    """The object of this name; an empty one where there is none."""
    told = thing.get(name)
    return told if isinstance(told, dict) else {}


def rows(thing: Body, name: str) -> Iterable[Body]:
    """The objects of the list of this name."""
    told = thing.get(name)
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []


def text(thing: Body, name: str) -> str:
    """The text of this name; "" where there is none."""
    told = thing.get(name)
    return told if isinstance(told, str) else ""


def moment(told: Any) -> datetime.datetime | None:
    """A moment as Azure writes it, with more digits than Python reads in some answers."""
    if not isinstance(told, str):
        return None
    whole, point, rest = told.partition(".")
    digits = "".join(c for c in rest if c.isdecimal())
    tail = rest.lstrip("0123456789")
    try:
        found = datetime.datetime.fromisoformat(
            f"{whole}.{digits[:6]}{tail}" if point else told,
        )
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


def _stays(about: Body, kind: contract.ChildKind) -> bool:
    """Whether it is there for its own sake: what an address was made for stands in its flag."""
    if kind is contract.ChildKind.ADDRESS:
        return text(about, "deleteOption") != "Delete"
    return kind in {contract.ChildKind.VOLUME, contract.ChildKind.SNAPSHOT}


_CONFIGURATIONS: Final = "ipConfigurations"


def _status(vm: Body) -> tuple[str, str, tuple[str, str] | None]:
    """Provisioning and power in Azure's words, and code and sentence of a failure."""
    about = inside(vm, "properties")
    provisioning, power = text(about, "provisioningState"), ""
    failure: tuple[str, str] | None = None
    for one in rows(inside(about, "instanceView"), "statuses"):
        word, _, rest = text(one, "code").partition("/")
        if word == "PowerState":
            power = rest
        elif word == "ProvisioningState" and rest.lower().startswith("failed"):
            code = rest.partition("/")[2]
            failure = code, text(one, "message") or text(one, "displayStatus") or "no words"
    if provisioning.lower() == "failed" and failure is None:
        failure = "", "Azure calls it failed and gives no reason"
    return provisioning, power, failure


def _power_of(provisioning: str, power: str, failure: tuple[str, str] | None) -> contract.Power:
    state = _PROVISIONING.get(provisioning.lower(), contract.Power.UNKNOWN)
    is_slow = failure is not None and failure[0] == errors.SLOW_TO_BOOT
    if state is contract.Power.DELETING or (state is contract.Power.FAILED and not is_slow):
        return state
    if power:
        return _POWER.get(power.lower(), contract.Power.UNKNOWN)
    return contract.Power.STARTING if is_slow else state


def _image_of(image: Body) -> str:
    if text(image, "id"):
        return text(image, "id")
    parts = [text(image, name) for name in ("publisher", "offer", "sku", "version")]
    return ":".join(parts) if all(parts) else ""
