"""How things at the fake Google live: what they need, what goes along, and how an order ends."""

import dataclasses
import datetime
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit
from tests.support.clouds import server

if TYPE_CHECKING:
    from tests.support.clouds import gcp

HOURLY: Final = {"e2-small": 19_600, "e2-medium": 36_400, "e2-standard-4": 136_900}
ADDRESS_HOURLY: Final = 5_000
IMAGES: Final = ("ubuntu-2404-lts-amd64", "debian-12")
MOST_METADATA: Final = 262_144
_KINDS: Final = {
    "disks": "disk",
    "snapshots": "snapshot",
    "addresses": "address",
    "firewalls": "security-group",
}
_CONDITION: Final = re.compile(r'([\w.-]+?)\s*(!=|=)\s*"([^"]*)"')


@dataclasses.dataclass(slots=True, kw_only=True)
class Thing:
    """One thing in the project."""

    ref: str
    kind: str
    scope: str
    born: datetime.datetime
    body: dict[str, Any]
    console: str = "SeaBIOS\nboot\n"


@dataclasses.dataclass(slots=True, kw_only=True)
class Operation:
    """What was accepted."""

    ref: str
    thing: Thing
    verb: str
    number: str
    request_id: str
    begun: datetime.datetime
    due: datetime.datetime
    fails: script_kit.Armed | None
    link: str
    is_done: bool = False
    error: dict[str, Any] | None = None

    def shown(self) -> dict[str, Any]:
        """As it is answered."""
        document: dict[str, Any] = {
            "kind": "compute#operation",
            "id": self.number,
            "name": self.ref.rpartition("/")[2],
            "operationType": self.verb,
            "targetLink": f"{self.link}{self.thing.ref}",
            "targetId": self.thing.body["id"],
            "selfLink": f"{self.link}{self.ref}",
            "status": "DONE" if self.is_done else "RUNNING",
            "progress": 100 if self.is_done else 0,
            "insertTime": self.begun.isoformat(timespec="milliseconds"),
        }
        if self.thing.scope.startswith("zones/"):
            document["zone"] = f"{self.link}{self.thing.scope}"
        if self.request_id:
            document["clientOperationId"] = self.request_id
        if self.error is not None:
            document["error"] = {"errors": [self.error]}
            document["httpErrorStatusCode"] = 503
            document["httpErrorMessage"] = "SERVICE UNAVAILABLE"
        return document


def check_instance(cloud: "gcp.Gcp", ref: str, body: Mapping[str, Any]) -> None:
    """Refuses what cannot be ordered."""
    zone = ref.split("/")[1]
    size = body["machineType"].rpartition("/")[2]
    known = {row["name"]: row for row in cloud.sizes(zone)}
    if size not in known:
        raise _refused("notFound", f"The machine type {size} was not found in {zone}")
    made = next(one for one in body["disks"] if one.get("boot"))["initializeParams"]
    image = made.get("sourceImage", "").rpartition("/")[2]
    snapshot = made.get("sourceSnapshot", "").partition(f"projects/{cloud.project}/")[2]
    if image not in IMAGES and snapshot not in cloud.held:
        raise _refused("notFound", f"The image {image or snapshot} was not found")
    for disk in body["disks"]:
        source = disk.get("source", "").partition(f"/{cloud.project}/")[2]
        if "source" in disk and source not in cloud.held:
            raise _refused("notFound", f"The disk {source} was not found")
    if re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", body["name"]) is None:
        raise _refused("invalid", f"Invalid value for field 'resource.name': '{body['name']}'.")
    for value in body["labels"].values():
        if re.fullmatch(r"[a-z0-9_-]{0,63}", value) is None:
            raise _refused("invalid", "Invalid value for field 'resource.labels'.")
    if any(len(one["value"]) > MOST_METADATA for one in body["metadata"]["items"]):
        raise _refused("invalid", "A metadata value is too long.")
    limit, used = cloud.quotas["CPUS"]
    if used + known[size]["guestCpus"] > limit:
        raise _refused("quotaExceeded", f"Quota 'CPUS' exceeded. Limit: {limit}.")


def made_of(cloud: "gcp.Gcp", ref: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What stands there for what was asked for."""
    made: dict[str, Any] = json.loads(json.dumps(body))
    if ref.endswith("/instances"):
        made["status"] = "PROVISIONING"
        for number, card in enumerate(made["networkInterfaces"]):
            card.setdefault("name", f"nic{number}")
            card["networkIP"] = "10.128.0.2"
            for access in card.get("accessConfigs", []):
                access.setdefault("natIP", f"198.51.100.{len(cloud.held) % 250 + 1}")
    elif ref.endswith("/disks"):
        made.setdefault("status", "READY")
    elif ref.endswith("/addresses"):
        made |= {"address": f"192.0.2.{len(cloud.held) % 250 + 1}", "status": "RESERVED"}
    return made


def make_disks(cloud: "gcp.Gcp", machine: Thing) -> None:
    """The boot disk is made with its machine."""
    for number, disk in enumerate(machine.body["disks"]):
        made = disk.pop("initializeParams", None)
        if made is not None:
            ref = f"{machine.scope}/disks/{made.get('diskName', machine.body['name'])}"
            source = {k: made[k] for k in ("sourceImage", "sourceSnapshot") if k in made}
            body = {"labels": made.get("labels", {}), "sizeGb": made.get("diskSizeGb", "10"),
                    "status": "READY", **source}  # fmt: skip
            disk["source"] = cloud.put(ref, body).body["selfLink"]
        else:
            disk["source"] = f"https://www.googleapis.com/compute/v1/{disk['source']}"
        disk.setdefault("deviceName", f"persistent-disk-{number}")


def finish(cloud: "gcp.Gcp", operation: Operation) -> None:
    """What was accepted comes to its end."""
    operation.is_done = True
    thing = operation.thing
    if operation.fails is not None:
        operation.error = _error_of(cloud, operation)
        _go(cloud, thing)
    elif operation.verb == "delete":
        _go(cloud, thing)
    elif operation.verb == "insert" and thing.body.get("status") == "PROVISIONING":
        thing.body["status"] = "RUNNING"


def act(cloud: "gcp.Gcp", there: Thing, action: str, asked: server.Asked) -> None:
    """What is done to a machine."""
    body = there.body
    if action == "reset":
        there.console += "reset\n"
    elif action == "attachDisk":
        told = asked.json()
        source = told["source"].partition(f"/{cloud.project}/")[2]
        if source not in cloud.held:
            raise _refused("notFound", f"The disk {source} was not found")
        user = user_of(cloud, cloud.held[source])
        if user is not None:
            raise _refused("resourceInUseByAnotherResource", f"{source} is used by {user}")
        link = cloud.held[source].body["selfLink"]
        body["disks"].append({**told, "source": link, "boot": False})
    elif action == "detachDisk":
        device = asked.first("deviceName")
        body["disks"] = [one for one in body["disks"] if one.get("deviceName") != device]
    elif action == "deleteAccessConfig":
        card = _card(body, asked)
        name = asked.first("accessConfig")
        card["accessConfigs"] = [one for one in card["accessConfigs"] if one["name"] != name]
    elif action == "addAccessConfig":
        card = _card(body, asked)
        if card.get("accessConfigs"):
            raise _refused("invalid", "At most one access config currently supported.")
        told = asked.json()
        told.setdefault("natIP", f"198.51.100.{len(cloud.operations) % 250 + 1}")
        card["accessConfigs"] = [told]


def user_of(cloud: "gcp.Gcp", thing: Thing) -> str | None:
    """The machine that has it."""
    for machine in cloud.held.values():
        if machine.kind != "instances":
            continue
        has = [one.get("source") for one in machine.body["disks"]]
        numbers = [access.get("natIP") for card in machine.body["networkInterfaces"]
                   for access in card.get("accessConfigs", [])]  # fmt: skip
        is_its = thing.kind == "addresses" and thing.body["address"] in numbers
        if thing.body["selfLink"] in has or is_its:
            return machine.ref
    return None


def shown(cloud: "gcp.Gcp", one: Thing) -> dict[str, Any]:
    """The thing as it is answered."""
    document: dict[str, Any] = json.loads(json.dumps(one.body))
    if one.kind in {"disks", "addresses"}:
        user = user_of(cloud, one)
        if user is not None:
            document["users"] = [cloud.held[user].body["selfLink"]]
    return document


def enter(ledger: ledger_kit.Ledger, one: Thing) -> None:
    """Writes it into the ledger."""
    tags, region = tags_of(one), one.scope.rpartition("/")[2]
    if one.kind == "instances":
        size = one.body["machineType"].rpartition("/")[2]
        items = {item["key"]: item["value"] for item in one.body["metadata"]["items"]}
        is_public = any(card.get("accessConfigs") for card in one.body["networkInterfaces"])
        ledger.machines[one.ref] = ledger_kit.Machine(
            ref=one.ref,
            name=one.body["name"],
            tags=tags,
            region=region,
            size=size,
            born=one.born,
            user_data=items.get("user-data", "").encode(),
            hourly_micros=HOURLY.get(size, 0) + (ADDRESS_HOURLY if is_public else 0),
            keys=[one.partition(":")[2] for one in items.get("ssh-keys", "").splitlines()],
            instance_id=one.body["id"],
        )
    elif one.kind in _KINDS:
        ledger.things[one.ref] = ledger_kit.Thing(
            ref=one.ref,
            kind=_KINDS[one.kind],
            name=one.body["name"],
            tags=tags,
            region=region,
            born=one.born,
            hourly_micros=ADDRESS_HOURLY if one.kind == "addresses" else 0,
        )


def tags_of(one: Thing) -> dict[str, str]:
    """Its labels, or what a rule carries in its description."""
    if one.kind == "firewalls":
        try:
            told: dict[str, str] = json.loads(one.body.get("description", ""))
        except ValueError:
            return {}
        return told
    return dict(one.body.get("labels", {}))


def fits(wanted: str, row: Mapping[str, Any]) -> bool:
    """Whether a row fits a filter: conditions joined by all ANDs or all ORs."""
    if not wanted:
        return True
    judged = [
        (str(_value(row, field)) == value) is (sign == "=")
        for field, sign, value in _CONDITION.findall(wanted)
    ]
    rest = _CONDITION.sub("", wanted).replace("(", "").replace(")", "").split()
    if not judged or set(rest) not in (set(), {"AND"}, {"OR"}):
        raise _refused("invalid", f"Invalid value for field 'filter': '{wanted}'.")
    return any(judged) if "OR" in rest else all(judged)


def _value(row: Mapping[str, Any], field: str) -> Any:
    if field.startswith("labels."):
        return row.get("labels", {}).get(field.removeprefix("labels."))
    return row.get(field)


def _go(cloud: "gcp.Gcp", thing: Thing) -> None:
    cloud.forget(thing)
    for disk in thing.body.get("disks", []) if thing.kind == "instances" else []:
        ref = disk["source"].partition(f"/{cloud.project}/")[2]
        there = cloud.held.get(ref)
        if there is not None and disk.get("autoDelete"):
            cloud.forget(there)


def _error_of(cloud: "gcp.Gcp", operation: Operation) -> dict[str, Any]:
    fails = operation.fails
    assert fails is not None
    error: dict[str, Any] = {"code": fails.code, "message": fails.message}
    zone = operation.thing.scope.removeprefix("zones/")
    if fails.code.endswith("_WITH_DETAILS"):
        told = ",".join(cloud.full.get(zone, ()))
        about = {"reason": "resource_availability", "domain": "compute.googleapis.com",
                 "metadatas": {"zonesAvailable": told, "zone": zone}}  # fmt: skip
        error["errorDetails"] = [{"errorInfo": about}]
    return error


def _card(body: Mapping[str, Any], asked: server.Asked) -> dict[str, Any]:
    name = asked.first("networkInterface")
    found: dict[str, Any] = next(one for one in body["networkInterfaces"] if one["name"] == name)
    return found


def _refused(reason: str, words: str) -> Exception:
    from tests.support.clouds import gcp  # noqa: PLC0415 - the two know one another

    return gcp.Refused(reason, words)
