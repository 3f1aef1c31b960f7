"""What Google tells of machines and their parts, read into the contract's values.

Owners are read from labels (a firewall rule has none and carries them in its description) and from
nothing else; a name proves nothing.

Known limit: Google tells no price here; what a thing costs comes from the catalogue's dated table.
"""

import datetime
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import answers, contract, naming
from provisioning.gcp import places

_POWER: Final[Mapping[str, contract.Power]] = {
    "PROVISIONING": contract.Power.STARTING,
    "STAGING": contract.Power.STARTING,
    "PENDING": contract.Power.STARTING,
    "RUNNING": contract.Power.RUNNING,
    "REPAIRING": contract.Power.RUNNING,
    "PENDING_STOP": contract.Power.STOPPING,
    "STOPPING": contract.Power.STOPPING,  # being stopped, or on its way to be gone
    "SUSPENDING": contract.Power.STOPPING,
    "SUSPENDED": contract.Power.OFF,
    "STOPPED": contract.Power.OFF,
    "TERMINATED": contract.Power.OFF,  # its disks are billed yet
    "DEPROVISIONING": contract.Power.DELETING,
}
_KINDS: Final[Mapping[str, contract.ChildKind]] = {
    "disks": contract.ChildKind.VOLUME,
    "snapshots": contract.ChildKind.SNAPSHOT,
    "addresses": contract.ChildKind.ADDRESS,
    "firewalls": contract.ChildKind.SECURITY_GROUP,
}

Body = Mapping[str, Any]


def instance_of(told: Body) -> contract.Instance:
    """A machine with what hangs on it. Raises `Fault`, `UNKNOWN`, where it is none."""
    spot = _spot_of(told)
    owner = naming.owner_of(labels(told))
    cards = list(objects(told, "networkInterfaces"))
    status = text(told, "status")
    return contract.Instance(
        ref=spot.ref,
        name=text(told, "name"),
        region=spot.region,
        zone=spot.zone,
        power=_POWER.get(status, contract.Power.UNKNOWN),
        raw_state=status,
        owner=owner,
        size=places.last(text(told, "machineType")),
        addresses=tuple(
            text(access, "natIP")
            for card in cards
            for access in objects(card, "accessConfigs")
            if text(access, "natIP")
        ),
        private_addresses=tuple(text(card, "networkIP") for card in cards if card.get("networkIP")),
        created_at=moment(told.get("creationTimestamp")),
        children=tuple(_disks_of(told, spot=spot, owner=owner)),
        failure=text(told, "statusMessage") or None,
        instance_id=text(told, "id") or None,
    )


def child_of(told: Body) -> contract.Child:
    """A disk, a snapshot, an address or a rule by itself. Raises as `instance_of`."""
    spot = _spot_of(told)
    owner = owner_of(told)
    kind = _KINDS[spot.kind]
    if kind is contract.ChildKind.VOLUME and (
        told.get("sourceImage") or told.get("sourceSnapshot")
    ):
        kind = contract.ChildKind.DISK  # it was made with a system on it
    users = told.get("users")
    size = text(told, "sizeGb") or text(told, "diskSizeGb")
    return contract.Child(
        kind=kind,
        ref=spot.ref,
        name=spot.name,
        region=spot.region,
        keep=kind not in {contract.ChildKind.DISK, contract.ChildKind.SECURITY_GROUP},
        attached_to=_machine_of(users) if isinstance(users, list) else None,
        owner=owner,
        size_gigabytes=int(size) if size.isdecimal() and len(size) < 9 else None,
        address=text(told, "address") or None,
        created_at=moment(told.get("creationTimestamp")),
    )


def owner_of(told: Body) -> contract.Owner | None:
    """Whose it is, by labels or by the description of what can have none."""
    if "allowed" not in told and "denied" not in told:
        return naming.owner_of(labels(told))
    try:
        said: Any = json.loads(text(told, "description"))
    except ValueError:
        return None
    return naming.owner_of(said) if isinstance(said, dict) else None


def labels(told: Body) -> Mapping[str, str]:
    """Its labels."""
    held = told.get("labels")
    return held if isinstance(held, dict) else {}


def objects(told: Body, name: str) -> Iterable[dict[str, Any]]:
    """The objects of the list of this name."""
    held = told.get(name)
    return [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []


def text(told: Body, name: str) -> str:
    """The text of this name; "" where there is none."""
    held = told.get(name)
    return held if isinstance(held, str) else ""


def moment(told: Any) -> datetime.datetime | None:
    """A moment as Google writes it."""
    try:
        return datetime.datetime.fromisoformat(told) if isinstance(told, str) else None
    except ValueError:
        return None


def access_of(told: Body) -> tuple[str, str, str] | None:
    """The first card, its way in from outside and the address there ("" for none)."""
    for card in objects(told, "networkInterfaces"):
        for access in objects(card, "accessConfigs"):
            return text(card, "name"), text(access, "name"), text(access, "natIP")
        return text(card, "name"), "", ""
    return None


def _spot_of(told: Body) -> places.Spot:
    try:
        return places.spot_of(text(told, "selfLink"))
    except ValueError:
        raise answers.unanswered("A thing", "an answer without what it should hold") from None


def _disks_of(
    told: Body, *, spot: places.Spot, owner: contract.Owner | None
) -> Iterable[contract.Child]:
    for one in objects(told, "disks"):
        try:
            disk = places.spot_of(text(one, "source"))
        except ValueError:
            continue
        is_own = bool(one.get("boot"))
        yield contract.Child(
            kind=contract.ChildKind.DISK if is_own else contract.ChildKind.VOLUME,
            ref=disk.ref,
            name=disk.name,
            region=disk.region,
            keep=not is_own,
            attached_to=spot.ref,
            owner=owner if is_own else None,
        )


def _machine_of(users: list[Any]) -> str | None:
    for one in users:
        if isinstance(one, str) and "/instances/" in one:
            return places.behind_project(one)
    return None
