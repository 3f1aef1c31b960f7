"""The catalogue of a fake Hetzner project, and its volumes, addresses, snapshots and the rest."""

from collections.abc import Mapping

from tests.support.clouds import hetzner_machines, hetzner_project, server
from tests.support.clouds import hetzner_shapes as shapes

Json = hetzner_project.Json
Refused = hetzner_project.Refused


class Things(hetzner_machines.Machines):
    """What is answered about whatever is no server."""

    def get_types(self, asked: server.Asked) -> server.Reply:
        types = [
            shapes.server_type(name, ends=self.ends.get(name), sold_out=self.sold_out)
            for name in shapes.TYPES
            if name not in self.gone_types
        ]
        return self.listed(asked, "server_types", types)

    def get_images(self, asked: server.Asked) -> server.Reply:
        return self.listed(asked, "images", [*self.system_images(), *self.snapshots.values()])

    def get_image(self, asked: server.Asked) -> server.Reply:
        held = {int(one["id"]): one for one in self.system_images()} | self.snapshots
        return self.get(asked, "image", held)

    def placement_group(self, asked: server.Asked) -> server.Reply:
        told = asked.json() if asked.body else {}
        if "name" not in told or "type" not in told:
            raise Refused("invalid_input", "invalid input in fields 'name', 'type'")
        raise Refused("forbidden", "no test makes placement groups")

    def create_volume(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.volumes)
        if told["size"] < 10:
            raise Refused("invalid_input", "invalid input in field 'size'")
        number = next(self.numbers)
        self.volumes[number] = {
            "id": number,
            "name": told["name"],
            "created": shapes.stamp(self.now),
            "format": None,
            "labels": dict(told.get("labels", {})),
            "linux_device": f"/dev/disk/by-id/scsi-0HC_Volume_{number}",
            "location": shapes.location(told["location"]),
            "protection": {"delete": False},
            "server": None,
            "size": told["size"],
            "status": "available",
        }
        self.note(number, "volume", self.volumes[number], told["location"])
        action = self.act("create_volume", ("volume", number))
        document = {
            "volume": self.volumes[number],
            "action": self.shown(action),
            "next_actions": [],
        }
        return server.Reply(status=201, document=document)

    def attach_volume(self, asked: server.Asked) -> server.Reply:
        one, told = self.one_of(asked, self.volumes), asked.json()
        target = self.servers.get(told["server"])
        if target is None:
            raise Refused("not_found", "server not found")
        if target["location"]["name"] != one["location"]["name"]:
            raise Refused("invalid_input", "server and volume are in different locations")
        if one["server"] is not None:
            raise Refused("volume_already_attached", "volume is already attached")
        one["server"] = told["server"]
        target["volumes"].append(one["id"])
        self.ledger.things[str(one["id"])].attached_to = str(told["server"])
        action = self.act("attach_volume", ("volume", one["id"]))
        return server.Reply(status=201, document={"action": self.shown(action)})

    def detach_volume(self, asked: server.Asked) -> server.Reply:
        one = self.one_of(asked, self.volumes)
        if one["server"] in self.servers:
            self.servers[one["server"]]["volumes"].remove(one["id"])
        one["server"] = None
        self.ledger.things[str(one["id"])].attached_to = None
        action = self.act("detach_volume", ("volume", one["id"]))
        return server.Reply(status=201, document={"action": self.shown(action)})

    def create_address(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.primary_ips)
        made = self.primary_ip(
            told["type"],
            name=told["name"],
            place=told["location"],
            auto_delete=told.get("auto_delete", False),
            labels=told.get("labels", {}),
        )
        return server.Reply(status=201, document={"primary_ip": made})

    def assign(self, asked: server.Asked) -> server.Reply:
        one, told = self.one_of(asked, self.primary_ips), asked.json()
        target = self.servers.get(told["assignee_id"])
        if target is None:
            raise Refused("not_found", "server not found")
        if target["status"] != "off":
            raise Refused("server_not_stopped", "server must be off")
        if target["public_net"][one["type"]] is not None:
            raise Refused(f"server_has_{one['type']}", "server has an address of this type")
        one["assignee_id"] = told["assignee_id"]
        self.ledger.things[str(one["id"])].attached_to = str(told["assignee_id"])
        target["public_net"][one["type"]] = {
            "id": one["id"],
            "ip": one["ip"],
            "blocked": False,
            "dns_ptr": "static.example" if one["type"] == "ipv4" else [],
        }
        action = self.act("assign_primary_ip", ("primary_ip", one["id"]))
        return server.Reply(status=201, document={"action": self.shown(action)})

    def unassign(self, asked: server.Asked) -> server.Reply:
        one = self.one_of(asked, self.primary_ips)
        target = self.servers.get(one["assignee_id"] or 0)
        if target is not None and target["status"] != "off":
            raise Refused("server_not_stopped", "server must be off")
        one["assignee_id"] = None
        self.ledger.things[str(one["id"])].attached_to = None
        if target is not None:
            target["public_net"][one["type"]] = None
        action = self.act("unassign_primary_ip", ("primary_ip", one["id"]))
        return server.Reply(status=201, document={"action": self.shown(action)})

    def snapshot(self, asked: server.Asked) -> server.Reply:
        one, told = self.one_of(asked, self.servers), asked.json()
        number = next(self.numbers)
        self.snapshots[number] = shapes.image(
            number,
            name=None,
            architecture=one["server_type"]["architecture"],
            disk=one["server_type"]["disk"],
            created=self.now,
            kind=told.get("type", "snapshot"),
            description=told.get("description", ""),
            labels=told.get("labels", {}),
            of=(one["id"], one["name"]),
        )
        self.note(number, "snapshot", self.snapshots[number], one["location"]["name"])
        action = self.act("create_image", ("server", one["id"]), ("image", number))
        document = {"image": self.snapshots[number], "action": self.shown(action)}
        return server.Reply(status=201, document=document)

    def create_key(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.ssh_keys)
        fingerprint = shapes.fingerprint(told["public_key"])
        if any(one["fingerprint"] == fingerprint for one in self.ssh_keys.values()):
            raise Refused("uniqueness_error", "SSH key with the same fingerprint already exists")
        number = next(self.numbers)
        self.ssh_keys[number] = {
            "id": number,
            "name": told["name"],
            "fingerprint": fingerprint,
            "public_key": told["public_key"],
            "labels": dict(told.get("labels", {})),
            "created": shapes.stamp(self.now),
        }
        self.note(number, "ssh-key", self.ssh_keys[number], "")
        return server.Reply(status=201, document={"ssh_key": self.ssh_keys[number]})

    def create_firewall(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.firewalls)
        number = next(self.numbers)
        self.firewalls[number] = {
            "id": number,
            "name": told["name"],
            "labels": dict(told.get("labels", {})),
            "created": shapes.stamp(self.now),
            "rules": _whole(told.get("rules", [])),
            "applied_to": [],
        }
        self.note(number, "security-group", self.firewalls[number], "")
        document = {"firewall": self.firewalls[number], "actions": []}
        return server.Reply(status=201, document=document)

    def set_rules(self, asked: server.Asked) -> server.Reply:
        one = self.one_of(asked, self.firewalls)
        one["rules"] = _whole(asked.json()["rules"])
        action = self.act("set_firewall_rules", ("firewall", one["id"]))
        return server.Reply(status=201, document={"actions": [self.shown(action)]})

    def drop(self, asked: server.Asked, held: dict[int, Json]) -> server.Reply:
        one = self.one_of(asked, held)
        in_use = one.get("server") or one.get("assignee_id") or one.get("applied_to")
        if in_use:
            raise Refused("resource_in_use", "resource is in use")
        if one.get("protection", {}).get("delete"):
            raise Refused("protected", "deletion is protected")
        self.end_thing(held, one["id"])
        return server.Reply(status=204)

    def _judge_name(self, told: Json, held: Mapping[int, Json]) -> None:
        if any(one["name"] == told["name"] for one in held.values()):
            raise Refused("uniqueness_error", "name is already used")


def _whole(rules: list[Json]) -> list[Json]:
    empty: Json = {"description": None, "port": None, "destination_ips": [], "source_ips": []}
    return [empty | rule for rule in rules]
