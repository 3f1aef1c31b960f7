"""How things at the fake Azure live: what they are given, how long they take, what goes along.

What was flagged goes with its machine, unless the fake is told to forget the flags; first-boot data
and passwords never come back.
"""

import datetime
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.support.clouds import azure_rules as rules
from tests.support.clouds import azure_things as things
from tests.support.clouds import ledger as ledger_kit

if TYPE_CHECKING:
    from tests.support.clouds import azure

HOURLY: Final = {"Standard_B2s": 44_900, "Standard_B2ms": 86_500, "Standard_A4_v2": 194_300}
ADDRESS_HOURLY: Final = 5_000
_KINDS: Final = {
    things.DISK: "disk",
    things.SNAPSHOT: "snapshot",
    things.NIC: "interface",
    things.ADDRESS: "address",
    things.GROUP: "security-group",
}


def make(cloud: "azure.Azure", one: things.Resource, body: Mapping[str, Any]) -> None:
    """Takes over what was asked for, and gives it what Azure gives."""
    one.body = {key: value for key, value in body.items() if key not in {"name", "id", "type"}}
    about = one.body["properties"]
    if one.kind.startswith("Microsoft.Network/"):
        about.setdefault("resourceGuid", str(uuid.uuid5(uuid.NAMESPACE_URL, one.ref)))
        one.body["etag"] = f'W/"{uuid.uuid4()}"'
    one.state = {things.VM: "Creating", things.NIC: "Succeeded"}.get(one.kind, "Updating")
    if one.kind == things.ADDRESS:
        about["ipAddress"] = f"203.0.113.{len(cloud.of(things.ADDRESS)) % 250 + 1}"
    elif one.kind == things.NIC:
        for number, inside in enumerate(about["ipConfigurations"]):
            inside["properties"].setdefault("privateIPAddress", f"10.83.0.{number + 4}")
            public = inside["properties"].get("publicIPAddress")
            if public is not None:
                address = cloud.held[public["id"].lower()]
                address.body["properties"]["ipConfiguration"] = {
                    "id": f"{one.ref}/ipConfigurations/{inside['name']}"
                }
        _unlink_addresses(cloud, one)
    elif one.kind == things.VM:
        about["vmId"] = str(uuid.uuid5(uuid.NAMESPACE_OID, one.ref))
        for card in about["networkProfile"]["networkInterfaces"]:
            nic = cloud.held[card["id"].lower()]
            nic.body["properties"]["virtualMachine"] = {"id": one.ref}
        _make_disk(cloud, one)
        set_disks(cloud, one, about["storageProfile"].get("dataDisks", []))


def finish(cloud: "azure.Azure", one: things.Resource) -> None:
    """What was under way is over."""
    operation = cloud.operations.get(one.operation or "", {})
    if one.is_dying:
        operation["status"] = "Succeeded"
        cloud.forget(one)
        _go_along(cloud, one)
        return
    if one.fails is not None:
        one.state = "Failed"
        operation["status"] = "Failed"
        operation["error"] = {"code": one.fails.code, "message": one.fails.message}
        return
    operation["status"] = "Succeeded"
    one.state = "Succeeded"
    if one.kind == things.VM:
        one.power = one.power or "running"


def _go_along(cloud: "azure.Azure", one: things.Resource) -> None:
    """What was flagged goes with it; what is not, is free again."""
    about = one.body["properties"]
    if one.kind == things.NIC:
        for public, there in _addresses_of(cloud, one):
            there.body["properties"].pop("ipConfiguration", None)
            if one.is_along and public["properties"].get("deleteOption") == "Delete":
                cloud.forget(there)
    if one.kind != things.VM:
        return
    for card in about["networkProfile"]["networkInterfaces"]:
        nic = cloud.held.get(card["id"].lower())
        if nic is None:
            continue
        nic.body["properties"].pop("virtualMachine", None)
        if one.fails is not None:
            nic.reserved_until = cloud.now() + datetime.timedelta(seconds=cloud.nic_reserved)
        if cloud.cascades and card["properties"].get("deleteOption") == "Delete":
            nic.is_along = True
            cloud.forget(nic)
            _go_along(cloud, nic)
    _free_disks(cloud, about["storageProfile"])


def _free_disks(cloud: "azure.Azure", storage: Mapping[str, Any]) -> None:
    for told in [storage["osDisk"], *storage.get("dataDisks", [])]:
        disk = cloud.held.get(told.get("managedDisk", {}).get("id", "").lower())
        if disk is not None:
            disk.body.pop("managedBy", None)
            if cloud.cascades and told.get("deleteOption") == "Delete":
                cloud.forget(disk)


def _addresses_of(
    cloud: "azure.Azure", nic: things.Resource
) -> Iterable[tuple[Mapping[str, Any], things.Resource]]:
    for inside in nic.body["properties"]["ipConfigurations"]:
        public = inside["properties"].get("publicIPAddress")
        there = cloud.held.get(public["id"].lower()) if public is not None else None
        if there is not None:
            yield public, there


def set_disks(cloud: "azure.Azure", vm: things.Resource, told: list[Any]) -> None:
    """Gives the machine these volumes and no others."""
    wanted = {one["managedDisk"]["id"].lower() for one in told}
    for disk in cloud.of(things.DISK):
        if disk.body.get("managedBy") == vm.ref and disk.ref.lower() not in wanted:
            own = vm.body["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"]
            if disk.ref != own:
                disk.body.pop("managedBy")
    for ref in wanted:
        there = cloud.held.get(ref)
        if there is None:
            raise things.Refused("ResourceNotFound", f"{ref} is not there.")
        if there.body.get("managedBy") not in {None, vm.ref}:
            raise things.Refused(
                "AttachDiskWhileBeingDetached", f"{there.name} is attached elsewhere."
            )
        there.body["managedBy"] = vm.ref
    vm.body["properties"]["storageProfile"]["dataDisks"] = told


def takes_seconds(one: things.Resource, *, usual: float) -> float:
    """Machines take their time; the rest is done by the next look."""
    return usual if one.kind == things.VM else 0.0


def shown(one: things.Resource, *, with_view: bool) -> dict[str, Any]:
    """The thing as it is answered: first-boot data and passwords never come back."""
    document = {"name": one.name, "id": one.ref, "type": one.kind, **one.body}
    about = dict(one.body["properties"])
    document["properties"] = about
    if one.kind in {things.VM, things.DISK, things.SNAPSHOT}:
        about["timeCreated"] = one.born.isoformat().replace("+00:00", ".1234567+00:00")
    if one.kind != things.VM:
        return document
    hidden = {"customData", "adminPassword"}
    about["osProfile"] = {k: v for k, v in about["osProfile"].items() if k not in hidden}
    if with_view:
        about["instanceView"] = {"statuses": list(_statuses(one))}
    return document


def enter(ledger: ledger_kit.Ledger, one: things.Resource, *, born: datetime.datetime) -> None:
    """Writes it into the ledger."""
    tags, region = one.body.get("tags", {}), one.body.get("location", "")
    if one.kind == things.VM and one.ref not in ledger.machines:
        system = one.body["properties"]["osProfile"]
        held = system.get("linuxConfiguration", {}).get("ssh", {}).get("publicKeys", [])
        ledger.machines[one.ref] = ledger_kit.Machine(
            ref=one.ref,
            name=one.name,
            tags=dict(tags),
            region=region,
            size=rules.size_of(one),
            born=born,
            user_data=rules.custom_data(one.body),
            hourly_micros=HOURLY.get(rules.size_of(one), 0),
            passwords=[system["adminPassword"]] if "adminPassword" in system else [],
            keys=[each["keyData"] for each in held],
            instance_id=one.body["properties"].get("vmId", ""),
        )
    elif one.kind in _KINDS and one.ref not in ledger.things:
        ledger.things[one.ref] = ledger_kit.Thing(
            ref=one.ref,
            kind=_KINDS[one.kind],
            name=one.name,
            tags=dict(tags),
            region=region,
            born=born,
            hourly_micros=ADDRESS_HOURLY if one.kind == things.ADDRESS else 0,
        )


def _statuses(one: things.Resource) -> Iterable[dict[str, Any]]:
    if one.fails is not None and one.state == "Failed":
        yield {
            "code": f"ProvisioningState/failed/{one.fails.code}",
            "level": "Error",
            "displayStatus": "Provisioning failed",
            "message": one.fails.message,
        }
    else:
        yield {"code": f"ProvisioningState/{one.state.lower()}", "level": "Info"}
    if one.power:
        yield {"code": f"PowerState/{one.power}", "level": "Info"}


def _make_disk(cloud: "azure.Azure", vm: things.Resource) -> None:
    own = vm.body["properties"]["storageProfile"]["osDisk"]
    own["osType"] = "Linux"
    body = {
        "location": vm.body["location"],
        "tags": dict(vm.body.get("tags", {})),
        "properties": {"osType": "Linux", "diskSizeGB": own.get("diskSizeGB", 30)},
    }
    disk = cloud.add(things.DISK, own["name"], body)
    disk.body["managedBy"] = vm.ref
    own["managedDisk"] = {**own.get("managedDisk", {}), "id": disk.ref}


def _unlink_addresses(cloud: "azure.Azure", nic: things.Resource) -> None:
    """Addresses that the card had and is not given any more are free."""
    has = {
        inside["properties"]["publicIPAddress"]["id"].lower()
        for inside in nic.body["properties"]["ipConfigurations"]
        if "publicIPAddress" in inside["properties"]
    }
    for address in cloud.of(things.ADDRESS):
        told = address.body["properties"].get("ipConfiguration", {}).get("id", "")
        if told.startswith(f"{nic.ref}/") and address.ref.lower() not in has:
            address.body["properties"].pop("ipConfiguration")
