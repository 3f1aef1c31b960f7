"""Storages, backups and floating addresses of the UpCloud of our own."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from provisioning import packed_owner
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import recordings, server

if TYPE_CHECKING:
    from tests.support.clouds import upcloud

ROUTES: Final = (
    ("GET", r"/1\.3/storage/template", "/1.3/storage/template"),
    ("GET", r"/1\.3/storage/private", "/1.3/storage/private"),
    ("POST", r"/1\.3/storage", "/1.3/storage"),
    ("GET", r"/1\.3/storage/([0-9a-f][^/]+)", "/1.3/storage/{uuid}"),
    ("DELETE", r"/1\.3/storage/([^/]+)", "/1.3/storage/{uuid}"),
    ("POST", r"/1\.3/storage/([^/]+)/backup", "/1.3/storage/{uuid}/backup"),
    ("POST", r"/1\.3/server/([^/]+)/storage/attach", "/1.3/server/{uuid}/storage/attach"),
    ("POST", r"/1\.3/server/([^/]+)/storage/detach", "/1.3/server/{uuid}/storage/detach"),
    ("GET", r"/1\.3/ip_address", "/1.3/ip_address"),
    ("POST", r"/1\.3/ip_address", "/1.3/ip_address"),
    ("GET", r"/1\.3/ip_address/([^/]+)", "/1.3/ip_address/{address}"),
    ("PATCH", r"/1\.3/ip_address/([^/]+)", "/1.3/ip_address/{address}"),
    ("DELETE", r"/1\.3/ip_address/([^/]+)", "/1.3/ip_address/{address}"),
)
_TEMPLATES: Final = {
    "01000000-0000-4000-8000-000020070100": "Debian GNU/Linux 12 (Bookworm)",
    "01000000-0000-4000-8000-000020080100": "Debian GNU/Linux 13 (Trixie)",
    "01000000-0000-4000-8000-000030240200": "Ubuntu Server 24.04 LTS (Noble Numbat)",
}


class Children:
    """Whatever hangs on servers or stands beside them."""

    def __init__(self, cloud: "upcloud.UpCloud") -> None:
        self._cloud = cloud
        self.storages: dict[str, dict[str, Any]] = {}
        self.addresses: dict[str, dict[str, Any]] = {}

    def answer(self, asked: server.Asked, *, name: str, groups: Sequence[str]) -> server.Reply:
        """Does the work of one of their calls."""
        method, _, path = name.partition(" ")
        if path.endswith(("/attach", "/detach")):
            return self._join_or_part(groups[0], asked, joins=path.endswith("/attach"))
        if path.endswith("/backup"):
            return self._back_up(groups[0], asked)
        kind = path.split("/")[2] if path else ""
        if kind == "ip_address":
            return self._address(method, groups, asked)
        if path == "/1.3/storage/template":
            return self._listed(asked, [_template(*pair) for pair in _TEMPLATES.items()])
        if path == "/1.3/storage/private":
            shown = [
                {key: value for key, value in one.items() if key != "servers"}
                for one in self.storages.values()
            ]
            return self._listed(asked, shown)
        return self._storage(method, groups, asked)

    def join(self, made: dict[str, Any], device: dict[str, Any]) -> None:
        """Gives a new server a disk: cloned, or one that is there."""
        if device["action"] == "attach":
            storage = self.storages[device["storage"]]
        else:
            storage = self._new_storage(
                title=device["title"], zone=made["zone"], size=device.get("size", 10)
            )
        self._attach(made, storage)

    def server_is_gone(self, gone: dict[str, Any], *, with_storages: bool, backups: str) -> None:
        """What was attached goes as well, or stays behind and is billed; so do its backups."""
        for device in gone["storage_devices"]["storage_device"]:
            self.storages[device["storage"]]["servers"]["server"] = []
            self._thing(device["storage"]).attached_to = None
            if with_storages:
                self._forget(self.storages, device["storage"])
                self._end_backups(device["storage"], backups)
        for address in self.addresses.values():
            if address["server"] == gone["uuid"]:
                address["server"] = address["mac"] = None
                self._thing(address["address"]).attached_to = None

    def _end_backups(self, origin: str, how: str) -> None:
        """`keep` all of a storage that is deleted, `keep_latest` alone, or `delete` all."""
        taken = [ref for ref, one in self.storages.items() if one.get("origin") == origin]
        ending = {"keep": [], "keep_latest": taken[:-1], "delete": taken}[how]
        for ref in ending:
            self._forget(self.storages, ref)

    # --- storages ------------------------------------------------------------------------------

    def _storage(self, method: str, groups: Sequence[str], asked: server.Asked) -> server.Reply:
        if method == "POST":
            order = asked.json()["storage"]
            made = self._new_storage(title=order["title"], zone=order["zone"], size=order["size"])
            return server.Reply(status=201, document={"storage": made})
        found = self.storages.get(groups[0])
        if found is None:
            return self._cloud.error(status=None, code="STORAGE_NOT_FOUND", message="")
        if method == "GET":
            return server.Reply(document={"storage": found})
        if found["servers"]["server"]:
            return self._cloud.error(status=409, code="STORAGE_ATTACHED", message="")
        self._forget(self.storages, groups[0])
        return server.Reply(status=204)

    def _new_storage(
        self, *, title: str, zone: str, size: int, kind: str = "normal"
    ) -> dict[str, Any]:
        recorded = recordings.first("createdeleteserverandstorage", "GET", "/1.3/storage/private")
        made: dict[str, Any] = copy.deepcopy(recorded["storages"]["storage"][0])
        made |= {
            "uuid": self._cloud.new_uuid("01"),
            "title": title,
            "zone": zone,
            "size": size,
            "type": kind,
            "created": self._cloud.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "servers": {"server": []},
        }
        self.storages[made["uuid"]] = made
        name = title.partition(" ")[0]
        child = {"backup": "snapshot"}.get(kind, "disk" if name.endswith("-disk") else "volume")
        self._keep(made["uuid"], kind=child, name=name, title=title, zone=zone)
        return made

    def _back_up(self, ref: str, asked: server.Asked) -> server.Reply:
        origin = self.storages.get(ref)
        if origin is None:
            return self._cloud.error(status=None, code="STORAGE_NOT_FOUND", message="")
        made = self._new_storage(
            title=asked.json()["storage"]["title"],
            zone=origin["zone"],
            size=origin["size"],
            kind="backup",
        )
        made["origin"] = ref
        return server.Reply(status=201, document={"storage": made})

    def _attach(self, holder: dict[str, Any], storage: dict[str, Any]) -> None:
        devices = holder["storage_devices"]["storage_device"]
        taken = {int(one["address"].partition(":")[2]) for one in devices}
        slot = next(place for place in range(16) if place not in taken)
        recorded = recordings.first("createdeleteserverandstorage", "POST", "/1.3/server")
        device = copy.deepcopy(recorded["server"]["storage_devices"]["storage_device"][0])
        devices.append(
            {
                **device,
                "address": f"virtio:{slot}",
                "storage": storage["uuid"],
                "storage_size": storage["size"],
                "storage_title": storage["title"],
            }
        )
        storage["servers"]["server"] = [holder["uuid"]]
        self._thing(storage["uuid"]).attached_to = holder["uuid"]

    def _join_or_part(self, ref: str, asked: server.Asked, *, joins: bool) -> server.Reply:
        holder, order = self._cloud.servers.get(ref), asked.json()["storage_device"]
        if holder is None:
            return self._cloud.error(status=None, code="SERVER_NOT_FOUND", message="")
        if joins:
            storage = self.storages.get(order["storage"])
            if storage is None:
                return self._cloud.error(status=None, code="STORAGE_NOT_FOUND", message="")
            self._attach(holder, storage)
            return server.Reply(document={"server": holder})
        devices = holder["storage_devices"]["storage_device"]
        gone = next(one for one in devices if one["address"] == order["address"])
        devices.remove(gone)
        self.storages[gone["storage"]]["servers"]["server"] = []
        self._thing(gone["storage"]).attached_to = None
        return server.Reply(document={"server": holder})

    def _listed(self, asked: server.Asked, rows: list[dict[str, Any]]) -> server.Reply:
        return server.Reply(document={"storages": {"storage": self._cloud.cut(asked, rows)}})

    # --- addresses -----------------------------------------------------------------------------

    def _address(self, method: str, groups: Sequence[str], asked: server.Asked) -> server.Reply:
        if method == "POST":
            return self._new_address(asked.json()["ip_address"])
        if not groups:
            rows = self._cloud.cut(asked, list(self.addresses.values()))
            return server.Reply(document={"ip_addresses": {"ip_address": rows}})
        found = self.addresses.get(groups[0])
        if found is None:
            return self._cloud.error(status=None, code="IP_ADDRESS_NOT_FOUND", message="")
        if method == "DELETE":
            self._forget(self.addresses, groups[0])
            return server.Reply(status=204)
        if method == "PATCH":
            self._move(found, asked.json()["ip_address"]["mac"])
        return server.Reply(document={"ip_address": found})

    def _new_address(self, order: dict[str, Any]) -> server.Reply:
        address = f"94.237.0.{len(self.addresses) + 1}"
        made = {
            "access": "public",
            "address": address,
            "family": order["family"],
            "floating": "yes",
            "mac": None,
            "part_of_plan": "no",
            "ptr_record": f"{address}.example.net",
            "server": None,
            "zone": order["zone"],
        }
        self.addresses[address] = made
        self._keep(address, kind="address", name=address, title="", zone=order["zone"])
        return server.Reply(status=201, document={"ip_address": made})

    def _move(self, address: dict[str, Any], mac: str | None) -> None:
        address["mac"], address["server"] = mac, None
        for ref, holder in self._cloud.servers.items():
            for interface in holder["networking"]["interfaces"]["interface"]:
                if mac is not None and interface["mac"] == mac:
                    address["server"] = ref
        self._thing(address["address"]).attached_to = address["server"]

    # --- the ledger ----------------------------------------------------------------------------

    def _keep(self, ref: str, *, kind: str, name: str, title: str, zone: str) -> None:
        owner = packed_owner.owner_of_line(title)
        pairs = [] if owner is None else packed_owner.as_tags(owner)
        self._cloud.ledger.things[ref] = ledger_kit.Thing(
            ref=ref,
            kind=kind,
            name=name,
            tags=dict(one.split(":", 1) for one in pairs),
            region=zone,
            born=self._cloud.now(),
        )

    def _thing(self, ref: str) -> ledger_kit.Thing:
        return self._cloud.ledger.things[ref]

    def _forget(self, store: dict[str, dict[str, Any]], ref: str) -> None:
        del store[ref]
        self._thing(ref).died = self._cloud.now()


def _template(ref: str, title: str) -> dict[str, Any]:
    return {
        "access": "public",
        "license": 0,
        "size": 4,
        "state": "online",
        "template_type": "cloud-init",
        "title": title,
        "type": "template",
        "uuid": ref,
    }
