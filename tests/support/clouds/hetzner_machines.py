"""The servers of a fake Hetzner project: bought, judged, come up, restarted, gone."""

import datetime
import re
from typing import Any

from tests.support.clouds import hetzner_project, server
from tests.support.clouds import hetzner_shapes as shapes
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")

Json = hetzner_project.Json
Refused = hetzner_project.Refused


class Machines(hetzner_project.Project):
    """What is answered about servers."""

    def create_server(
        self, asked: server.Asked, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        told: Json = asked.json()
        place = told.get("location", "fsn1")
        self._judge_server(told, place)
        number = next(self.numbers)
        addresses = self._addresses_for(told, place, number)
        image = self._image(told)
        one: Json = {
            "id": number,
            "name": told["name"],
            "status": "initializing",
            "created": shapes.stamp(self.now),
            "public_net": {**addresses, "floating_ips": [], "firewalls": []},
            "private_net": [
                {"network": net, "ip": f"10.0.0.{number % 250 + 2}", "alias_ips": []}
                | {"mac_address": "86:00:00:00:00:01"}
                for net in told.get("networks", [])
            ],
            "server_type": shapes.server_type(told["server_type"]),
            "datacenter": shapes.datacenter(place),
            "location": shapes.location(place),
            "image": image,
            "iso": None,
            "rescue_enabled": False,
            "locked": False,
            "backup_window": None,
            "outgoing_traffic": None,
            "ingoing_traffic": None,
            "included_traffic": 20 * 10**12,
            "protection": {"delete": False, "rebuild": False},
            "labels": dict(told.get("labels", {})),
            "volumes": list(told.get("volumes", [])),
            "load_balancers": [],
            "primary_disk_size": image["disk_size"],
            "placement_group": None,
        }
        self.servers[number] = one
        for volume in one["volumes"]:
            self.volumes[volume]["server"] = number
        for row in told.get("firewalls", []):
            self._apply(row["firewall"], number)
        self.ledger.machines[str(number)] = ledger_kit.Machine(
            ref=str(number),
            name=told["name"],
            tags=one["labels"],
            region=place,
            size=told["server_type"],
            born=self.now,
            user_data=str(told.get("user_data", "")).encode(),
            hourly_micros=round(float(shapes.TYPES[told["server_type"]][4]) * 1_000_000),
        )
        password = None if told.get("ssh_keys") else "hz-root-password-9f8e7d"
        machine = self.ledger.machines[str(number)]
        machine.passwords += [] if password is None else [password]
        held = {one["name"]: one["public_key"] for one in self.ssh_keys.values()}
        machine.keys += [held[name] for name in told.get("ssh_keys", [])]
        error = (async_fail.code, async_fail.message) if async_fail is not None else None

        def ended() -> None:
            if error is not None:
                self._vanish(number)
            elif one["status"] == "initializing":
                one["status"] = "running"

        action = self.act("create_server", ("server", number), ended=ended, error=error)
        after = self.act("start_server", ("server", number), error=error)
        return server.Reply(
            status=201,
            document={
                "server": one,
                "action": self.shown(action),
                "next_actions": [self.shown(after)],
                "root_password": password,
            },
        )

    def _judge_server(self, told: Json, place: str) -> None:
        name = str(told["name"])
        if not _NAME.fullmatch(name):
            raise Refused("invalid_input", f"invalid input in field 'name': {name!r}")
        for key, value in told.get("labels", {}).items():
            if value and not _LABEL.fullmatch(value):
                raise Refused("invalid_input", f"invalid label value for {key}: {value!r}")
        busy = self.busy.get(name)
        if (busy is not None and busy > self.now) or any(
            one["name"] == name for one in self.servers.values()
        ):
            raise Refused("uniqueness_error", "server name is already used")
        self._judge_place(told, place)
        if len(self.servers) >= self.server_limit:
            raise Refused("resource_limit_exceeded", "server limit exceeded")
        if (told["server_type"], place) in self.sold_out:
            raise Refused("resource_unavailable", "error during placement")

    def _judge_place(self, told: Json, place: str) -> None:
        kind = told["server_type"]
        if kind not in shapes.TYPES or kind in self.gone_types or self._is_over(kind):
            raise Refused("invalid_input", "unsupported server type")
        if place not in [one["name"] for one in shapes.server_type(kind)["locations"]]:
            raise Refused("invalid_input", "unsupported location for server type")
        if len(str(told.get("user_data", "")).encode()) > 32 * 1024:
            raise Refused("invalid_input", "invalid input in field 'user_data': too long")
        self._image(told)
        for ref in told.get("volumes", []):
            if ref not in self.volumes:
                raise Refused("not_found", f"volume {ref} not found")
            if self.volumes[ref]["location"]["name"] != place:
                raise Refused("invalid_input", "volume is in another location")

    def _is_over(self, kind: str) -> bool:
        return kind in self.ends and self.ends[kind] <= self.now

    def _image(self, told: Json) -> Json:
        wanted, kind = str(told["image"]), told["server_type"]
        for one in [*self.system_images(), *self.snapshots.values()]:
            architecture = "arm" if kind.startswith("cax") else "x86"
            if one["architecture"] == architecture and wanted in {one["name"], str(one["id"])}:
                return one
        raise Refused("invalid_input", "image not found")

    def _addresses_for(self, told: Json, place: str, number: int) -> Json:
        public = told.get("public_net", {})
        found: Json = {"ipv4": None, "ipv6": None}
        for kind in ("ipv4", "ipv6"):
            if not public.get(f"enable_{kind}", True):
                continue
            ref = public.get(kind)
            if ref is not None:
                if ref not in self.primary_ips:
                    raise Refused("not_found", f"primary_ip {ref} not found")
                held = self.primary_ips[ref]
                if held["location"]["name"] != place:
                    raise Refused("invalid_input", "primary_ip_datacenter_mismatch")
                held["assignee_id"] = number
            else:
                held = self.primary_ip(
                    kind, name=f"primary_ip-{number}-{kind}", place=place, auto_delete=True
                )
                held["assignee_id"] = number
            pointer: Any = "static.example" if kind == "ipv4" else []
            found[kind] = {
                "id": held["id"],
                "ip": held["ip"],
                "blocked": False,
                "dns_ptr": pointer,
            }
        return found

    def get_server(self, asked: server.Asked) -> server.Reply:
        one = self.one_of(asked, self.servers)
        if self.age(one) < self.script.describe_lag:
            raise Refused("not_found", "server not found")
        return server.Reply(document={"server": one})

    def delete_server(self, asked: server.Asked) -> server.Reply:
        one = self.one_of(asked, self.servers)
        if one["protection"]["delete"]:
            raise Refused("protected", "server deletion is protected")
        number = int(one["id"])
        one["status"] = "deleting"
        action = self.act("delete_server", ("server", number), ended=lambda: self._vanish(number))
        return server.Reply(document={"action": self.shown(action)})

    def vanish(self, ref: str) -> None:
        """Takes a server away behind everybody's back."""
        self._vanish(int(ref))

    def _vanish(self, number: int) -> None:
        one = self.servers.pop(number, None)
        if one is None:
            return
        self.ledger.machines[str(number)].died = self.now
        if self.script.name_busy:
            self.busy[one["name"]] = self.now + datetime.timedelta(seconds=self.script.name_busy)
        for ref, held in list(self.primary_ips.items()):
            if held["assignee_id"] == number:
                held["assignee_id"] = None
                if held["auto_delete"]:
                    self.end_thing(self.primary_ips, ref)
        for volume in self.volumes.values():
            if volume["server"] == number:
                volume["server"] = None
        for firewall in self.firewalls.values():
            firewall["applied_to"] = [
                row for row in firewall["applied_to"] if row["server"]["id"] != number
            ]

    def reboot(self, asked: server.Asked) -> server.Reply:
        one = self.one_of(asked, self.servers)
        action = self.act("reboot_server", ("server", one["id"]))
        return server.Reply(status=201, document={"action": self.shown(action)})

    def power(self, asked: server.Asked) -> server.Reply:
        """Turns one off or on, a while after it was asked."""
        one, word = self.one_of(asked, self.servers), asked.path.rsplit("/", 1)[1]
        is_heeded = word != "shutdown" or self.heeds_shutdowns

        def ended() -> None:
            if is_heeded:
                one["status"] = "running" if word == "poweron" else "off"

        commands = {"poweron": "start_server", "poweroff": "stop_server"}
        command = commands.get(word, "shutdown_server")
        action = self.act(command, ("server", one["id"]), ended=ended)
        return server.Reply(status=201, document={"action": self.shown(action)})

    def get_actions(self, asked: server.Asked) -> server.Reply:
        wanted = [int(one) for one in asked.query.get("id", [])]
        found = [self.actions[one] for one in wanted if one in self.actions]
        return server.Reply(document={"actions": [self.shown(one) for one in found]})

    def system_images(self) -> list[Json]:
        return [
            shapes.image(number, name=name, architecture=architecture, disk=disk, created=self.now)
            for number, (name, architecture, disk) in shapes.IMAGES.items()
        ]

    def _apply(self, firewall: int, number: int) -> None:
        if firewall not in self.firewalls:
            raise Refused("not_found", f"firewall {firewall} not found")
        self.firewalls[firewall]["applied_to"].append({"type": "server", "server": {"id": number}})
        self.servers[number]["public_net"]["firewalls"].append(
            {"id": firewall, "status": "applied"}
        )
