"""Volumes, snapshots, reserved addresses and SSH keys of the DigitalOcean of our own.

A volume that is attached is not deleted; a snapshot of a droplet exists once its action is over;
an address can carry no tag; one SSH key stands in the account once.
"""

import hashlib
import itertools
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from provisioning import naming, packed_owner
from tests.support.clouds import digitalocean_shapes as shapes
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import server

if TYPE_CHECKING:
    from tests.support.clouds import digitalocean

_SNAPSHOT_GIGABYTES: Final = 1.5


class Children:
    """Whatever stands beside droplets."""

    def __init__(self, cloud: "digitalocean.DigitalOcean") -> None:
        self._cloud = cloud
        self.volumes: dict[str, dict[str, Any]] = {}
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.addresses: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.firewalls: dict[str, dict[str, Any]] = {}
        self.tags: set[str] = set()
        self._pending: list[tuple[dict[str, Any], dict[str, Any]]] = []  # action, snapshot
        self._numbers = itertools.count(1)

    def answer(self, asked: server.Asked, *, name: str, groups: Sequence[str]) -> server.Reply:
        """Does the work of one of their calls."""
        method, _, path = name.partition(" ")
        kind = path.split("/")[2]
        if path == "/v2/volumes/{id}/snapshots":
            return self._snapshot_volume(groups[0], asked)
        if path.endswith("/actions"):
            act = self._act_on_volume if kind == "volumes" else self._act_on_address
            return act(groups[0], asked)
        if method == "POST":
            make = {
                "volumes": self._make_volume,
                "reserved_ips": self._make_address,
                "account": self._make_key,
                "tags": self._make_tag,
                "firewalls": self._make_firewall,
            }[kind]
            return make(asked)
        return self._listed(asked, method, kind, groups)

    def _listed(
        self, asked: server.Asked, method: str, kind: str, groups: Sequence[str]
    ) -> server.Reply:
        store, key, many = {
            "volumes": (self.volumes, "volume", "volumes"),
            "snapshots": (self.snapshots, "snapshot", "snapshots"),
            "reserved_ips": (self.addresses, "reserved_ip", "reserved_ips"),
            "account": (self.keys, "ssh_key", "ssh_keys"),
            "firewalls": (self.firewalls, "firewall", "firewalls"),
        }[kind]
        if not groups:
            return self._cloud.page(asked, many, self._filtered(asked, list(store.values())))
        if groups[0] not in store:
            return self._cloud.error(status=None, code="not_found", message="")
        if method == "GET":
            return server.Reply(document={key: store[groups[0]]})
        if kind == "volumes" and store[groups[0]].get("droplet_ids"):
            return self._cloud.error(status=None, code="conflict", message="")
        del store[groups[0]]
        self._cloud.ledger.things[groups[0]].died = self._cloud.now()
        return server.Reply(status=204)

    # --- what droplets do to them ---------------------------------------------------------------

    def settle(self) -> None:
        """Snapshots that were being taken are there."""
        for action, snapshot in self._pending:
            action["status"] = "completed"
            self._keep(self.snapshots, snapshot, kind="snapshot", ref=snapshot["id"])
        self._pending.clear()

    def volumes_of(self, droplet: int) -> list[str]:
        """The volumes that this droplet has."""
        return [ref for ref, one in self.volumes.items() if droplet in one["droplet_ids"]]

    def hold(self, ref: str, droplet: int) -> None:
        """Gives the volume to the droplet."""
        self.volumes[ref]["droplet_ids"] = [droplet]
        self._cloud.ledger.things[ref].attached_to = str(droplet)

    def let_go(self, droplet: int) -> None:
        """The droplet is gone: what it had stays."""
        for ref in self.volumes_of(droplet):
            self.volumes[ref]["droplet_ids"] = []
        for address in self.addresses.values():
            if (address["droplet"] or {}).get("id") == droplet:
                address["droplet"] = None
        for thing in self._cloud.ledger.things.values():
            if thing.attached_to == str(droplet):
                thing.attached_to = None

    def image(self, wanted: str | int) -> dict[str, Any] | None:
        """An image: a distribution's, or a finished snapshot of a droplet."""
        snapshot = self.snapshots.get(str(wanted))
        if snapshot is None:
            return shapes.image_of(wanted)
        return {
            **shapes.image("debian-12-x64"),
            "id": int(snapshot["id"]),
            "slug": None,
            "type": "snapshot",
            "name": snapshot["name"],
        }

    def begin_snapshot(self, droplet: int, name: str, action: dict[str, Any], region: str) -> None:
        """Takes a snapshot, which is there once its action is over."""
        snapshot = self._snapshot(
            str(118_857_000 + next(self._numbers)), name, str(droplet), "droplet", region, []
        )
        self._pending.append((action, snapshot))

    def companions(self, droplet: int) -> server.Reply:
        """What would outlive the droplet, with its cost."""
        if droplet not in self._cloud.droplets:
            return self._cloud.error(status=None, code="not_found", message="")
        return server.Reply(
            document={
                "reserved_ips": [
                    {"id": ref, "name": ref, "cost": "0.00"}
                    for ref, one in self.addresses.items()
                    if (one["droplet"] or {}).get("id") == droplet
                ],
                "floating_ips": [],
                "snapshots": [
                    {"id": one["id"], "name": one["name"], "cost": "0.09"}
                    for one in self.snapshots.values()
                    if one["resource_id"] == str(droplet)
                ],
                "volumes": [
                    {"id": ref, "name": self.volumes[ref]["name"], "cost": "1.00"}
                    for ref in self.volumes_of(droplet)
                ],
                "volume_snapshots": [],
            }
        )

    # --- making ---------------------------------------------------------------------------------

    def _make_volume(self, asked: server.Asked) -> server.Reply:
        order = asked.json()
        same = (order["name"], order["region"])
        if any((one["name"], one["region"]["slug"]) == same for one in self.volumes.values()):
            return self._cloud.error(
                status=409, code="conflict", message="a volume with this name already exists"
            )
        ref = str(uuid.UUID(int=next(self._numbers), version=4))
        volume = {
            "id": ref,
            "droplet_ids": [],
            "name": order["name"],
            "description": "",
            "size_gigabytes": order["size_gigabytes"],
            "created_at": shapes.moment(self._cloud.now()),
            "tags": order.get("tags") or [],
            "region": shapes.region(order["region"]),
            "filesystem_type": "",
            "filesystem_label": "",
        }
        self._keep(self.volumes, volume, kind="volume", ref=ref)
        return server.Reply(status=201, document={"volume": volume})

    def _make_address(self, asked: server.Asked) -> server.Reply:
        ref = f"198.51.100.{next(self._numbers)}"
        address = {
            "ip": ref,
            "region": shapes.region(asked.json()["region"]),
            "droplet": None,
            "locked": False,
            "project_id": "746c6152-2fa2-11ed-92d3-27aaa54e4988",
        }
        self._keep(self.addresses, address, kind="address", ref=ref)
        link = {"id": 7, "rel": "create", "href": "https://api.digitalocean.com/v2/actions/7"}
        document = {"reserved_ip": address, "links": {"droplets": [], "actions": [link]}}
        return server.Reply(status=202, document=document)

    def _make_key(self, asked: server.Asked) -> server.Reply:
        order = asked.json()
        digest = hashlib.sha256(order["public_key"].encode()).hexdigest()[:32]
        fingerprint = ":".join(digest[place : place + 2] for place in range(0, 32, 2))
        if any(one["fingerprint"] == fingerprint for one in self.keys.values()):
            return self._cloud.error(
                status=422,
                code="unprocessable_entity",
                message="SSH Key is already in use on your account",
            )
        key = {
            "id": 289_794 + next(self._numbers),
            "fingerprint": fingerprint,
            "public_key": order["public_key"],
            "name": order["name"],
        }
        self._keep(self.keys, key, kind="ssh-key", ref=str(key["id"]))
        return server.Reply(status=201, document={"ssh_key": key})

    def _make_tag(self, asked: server.Asked) -> server.Reply:
        name = asked.json()["name"]
        self.tags.add(name)
        nothing: dict[str, Any] = {"count": 0}
        kinds = ("droplets", "images", "volumes", "volume_snapshots", "databases")
        resources = nothing | dict.fromkeys(kinds, nothing)
        document = {"tag": {"name": name, "resources": resources}}
        return server.Reply(status=201, document=document)

    def _make_firewall(self, asked: server.Asked) -> server.Reply:
        """One applies by its tags, which have to be there."""
        order = asked.json()
        if not set(order.get("tags") or []) <= self.tags:
            return self._cloud.error(
                status=422, code="unprocessable_entity", message="tags do not exist"
            )
        if any(one["name"] == order["name"] for one in self.firewalls.values()):
            return self._cloud.error(status=409, code="conflict", message="duplicate name")
        firewall = {
            **order,
            "id": str(uuid.UUID(int=next(self._numbers), version=4)),
            "status": "succeeded",
            "created_at": shapes.moment(self._cloud.now()),
            "pending_changes": [],
            "droplet_ids": [],
        }
        self._keep(self.firewalls, firewall, kind="security-group", ref=firewall["id"])
        self._cloud.ledger.things[firewall["id"]].tags = _owner_tags(order["name"])
        return server.Reply(status=202, document={"firewall": firewall})

    def _snapshot_volume(self, volume: str, asked: server.Asked) -> server.Reply:
        if volume not in self.volumes:
            return self._cloud.error(status=None, code="not_found", message="")
        order, ref = asked.json(), str(uuid.UUID(int=next(self._numbers), version=4))
        region = self.volumes[volume]["region"]["slug"]
        snapshot = self._snapshot(
            ref, order["name"], volume, "volume", region, order.get("tags") or []
        )
        self._keep(self.snapshots, snapshot, kind="snapshot", ref=ref)
        return server.Reply(status=201, document={"snapshot": snapshot})

    def _snapshot(  # noqa: PLR0917 - one row of a table
        self, ref: str, name: str, of: str, kind: str, region: str, tags: list[str]
    ) -> dict[str, Any]:
        return {
            "id": ref,
            "name": name,
            "created_at": shapes.moment(self._cloud.now()),
            "regions": [region],
            "min_disk_size": 10,
            "size_gigabytes": _SNAPSHOT_GIGABYTES,
            "resource_id": of,
            "resource_type": kind,
            "tags": tags,
        }

    def _act_on_volume(self, ref: str, asked: server.Asked) -> server.Reply:
        order, volume = asked.json(), self.volumes.get(ref)
        if volume is None or order["droplet_id"] not in self._cloud.droplets:
            return self._cloud.error(status=None, code="not_found", message="")
        if order["type"] == "attach":
            if volume["droplet_ids"]:
                return self._cloud.error(
                    status=422, code="unprocessable_entity", message="volume is already attached"
                )
            self.hold(ref, order["droplet_id"])
        else:
            volume["droplet_ids"] = []
            self._cloud.ledger.things[ref].attached_to = None
        return self._acted(order["type"], "volume", volume["region"]["slug"], status=202)

    def _act_on_address(self, ref: str, asked: server.Asked) -> server.Reply:
        order, address = asked.json(), self.addresses.get(ref)
        if address is None:
            return self._cloud.error(status=None, code="not_found", message="")
        thing = self._cloud.ledger.things[ref]
        if order["type"] == "unassign":
            address["droplet"], thing.attached_to = None, None
        else:
            droplet = self._cloud.droplets.get(order["droplet_id"])
            if droplet is None:
                return self._cloud.error(status=None, code="not_found", message="")
            address["droplet"] = self._cloud.shown(droplet)
            thing.attached_to = str(droplet.ref)
        return self._acted(order["type"], "reserved_ip", address["region"]["slug"], status=201)

    def _acted(self, kind: str, resource_type: str, region: str, *, status: int) -> server.Reply:
        action = self._cloud.new_action(
            kind, resource=None, resource_type=resource_type, region=region
        )
        action["status"] = "completed"
        return server.Reply(status=status, document={"action": action})

    def _filtered(self, asked: server.Asked, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        name, region, kind = (asked.first(one) for one in ("name", "region", "resource_type"))
        return [
            row
            for row in rows
            if (not name or row["name"] == name)
            and (not region or row["region"]["slug"] == region)
            and (not kind or row["resource_type"] == kind)
        ]

    def _keep(
        self, store: dict[str, dict[str, Any]], row: dict[str, Any], *, kind: str, ref: str
    ) -> None:
        store[ref] = row
        name = str(row.get("name", ref))
        owner = packed_owner.owner_of_line(name)
        tags = row.get("tags") or ([] if owner is None else packed_owner.as_tags(owner))
        self._cloud.ledger.things[ref] = ledger_kit.Thing(
            ref=ref,
            kind=kind,
            name=name,
            tags=dict(one.split(":", 1) for one in tags if ":" in one),
            region="",
            born=self._cloud.now(),
        )


def _owner_tags(name: str) -> dict[str, str]:
    owner = packed_owner.owner_of_dotted(name)
    return {} if owner is None else dict(naming.tags_of(owner))
