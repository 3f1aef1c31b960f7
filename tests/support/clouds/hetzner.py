"""A fake Hetzner Cloud: one project with servers, actions, volumes, addresses, keys, firewalls.

It behaves by itself as the fact sheet says: names unique in the project, actions that take their
time, machines that vanish a while after their deletion, a budget of calls that refills, a token
that reads or reads and writes. What goes wrong besides is the script's.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Mapping

from runtime_kit import clock as clock_kit
from tests.support.clouds import hetzner_project, hetzner_shapes, hetzner_things, server
from tests.support.clouds import script as script_kit

STATUS = {
    "unauthorized": 401,
    "forbidden": 403,
    "token_readonly": 403,
    "resource_limit_exceeded": 403,
    "not_found": 404,
    "uniqueness_error": 409,
    "conflict": 409,
    "resource_in_use": 409,
    "resource_unavailable": 412,
    "placement_error": 412,
    "invalid_input": 422,
    "server_has_ipv4": 422,
    "server_not_stopped": 422,
    "locked": 423,
    "protected": 423,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "maintenance": 503,
    "unavailable": 504,
}
_NUMBER = re.compile(r"(?<=/)\d+(?=/|$)")

Refused = hetzner_project.Refused


class FakeHetzner(hetzner_things.Things):
    """One project behind its routes."""

    def __init__(self, *, clock: clock_kit.Clock, action_seconds: float = 5.0) -> None:
        super().__init__(clock=clock, action_seconds=action_seconds)
        self._routes: Mapping[str, Callable[[server.Asked], server.Reply]] = {
            "GET /v1/servers": lambda asked: self.list_(asked, "servers", self.seen_servers()),
            "GET /v1/servers/{id}": self.get_server,
            "DELETE /v1/servers/{id}": self.delete_server,
            "POST /v1/servers/{id}/actions/reboot": self.reboot,
            "POST /v1/servers/{id}/actions/shutdown": self.power,
            "POST /v1/servers/{id}/actions/poweroff": self.power,
            "POST /v1/servers/{id}/actions/poweron": self.power,
            "POST /v1/servers/{id}/actions/create_image": self.snapshot,
            "GET /v1/actions": self.get_actions,
            "GET /v1/server_types": self.get_types,
            "GET /v1/pricing": lambda _: server.Reply(
                document={"pricing": hetzner_shapes.pricing()}
            ),
            "GET /v1/images": self.get_images,
            "GET /v1/images/{id}": self.get_image,
            "DELETE /v1/images/{id}": lambda asked: self.drop(asked, self.snapshots),
            "GET /v1/networks": lambda asked: self.list_(asked, "networks", self.networks),
            "POST /v1/placement_groups": self.placement_group,
            "GET /v1/volumes": lambda asked: self.list_(asked, "volumes", self.volumes),
            "GET /v1/volumes/{id}": lambda asked: self.get(asked, "volume", self.volumes),
            "POST /v1/volumes": self.create_volume,
            "DELETE /v1/volumes/{id}": lambda asked: self.drop(asked, self.volumes),
            "POST /v1/volumes/{id}/actions/attach": self.attach_volume,
            "POST /v1/volumes/{id}/actions/detach": self.detach_volume,
            "GET /v1/primary_ips": lambda asked: self.list_(asked, "primary_ips", self.primary_ips),
            "GET /v1/primary_ips/{id}": lambda asked: self.get(
                asked, "primary_ip", self.primary_ips
            ),
            "POST /v1/primary_ips": self.create_address,
            "DELETE /v1/primary_ips/{id}": lambda asked: self.drop(asked, self.primary_ips),
            "POST /v1/primary_ips/{id}/actions/assign": self.assign,
            "POST /v1/primary_ips/{id}/actions/unassign": self.unassign,
            "GET /v1/ssh_keys": lambda asked: self.list_(asked, "ssh_keys", self.ssh_keys),
            "GET /v1/ssh_keys/{id}": lambda asked: self.get(asked, "ssh_key", self.ssh_keys),
            "POST /v1/ssh_keys": self.create_key,
            "DELETE /v1/ssh_keys/{id}": lambda asked: self.drop(asked, self.ssh_keys),
            "GET /v1/firewalls": lambda asked: self.list_(asked, "firewalls", self.firewalls),
            "GET /v1/firewalls/{id}": lambda asked: self.get(asked, "firewall", self.firewalls),
            "POST /v1/firewalls": self.create_firewall,
            "POST /v1/firewalls/{id}/actions/set_rules": self.set_rules,
            "DELETE /v1/firewalls/{id}": lambda asked: self.drop(asked, self.firewalls),
        }

    def name_of(self, asked: server.Asked) -> str:
        """The route, its numbers replaced."""
        name = f"{asked.method} {_NUMBER.sub('{id}', asked.path)}"
        return name if name in self._routes or name == "POST /v1/servers" else ""

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work of one request."""
        self.settle()
        if self.on_list is not None and "page" in asked.query:
            self.on_list(int(asked.first("page")))
        if not self.take_budget():
            return self.rate_limited()
        may = self.tokens.get(asked.headers.get("authorization", "").removeprefix("Bearer "))
        if may is None:
            return self.unauthorized()
        if may == "ro" and asked.method != "GET":
            return self.error(status=None, code="token_readonly", message="read only")
        if not name:
            return self.error(status=None, code="not_found", message="no such route")
        try:
            if name == "POST /v1/servers":
                reply = self.create_server(asked, async_fail)
            else:
                reply = self._routes[name](asked)
        except Refused as refused:
            reply = self.error(status=None, code=refused.code, message=refused.message)
        return dataclasses.replace(reply, headers={**reply.headers, **self.budget_headers()})

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """An error in the provider's form."""
        document = {"error": {"code": code, "message": message, "details": None}}
        return server.Reply(status=status or STATUS.get(code, 400), document=document)

    def unauthorized(self) -> server.Reply:
        """How a token that is none is refused."""
        return self.error(
            status=None, code="unauthorized", message="the token you provided is invalid"
        )

    def rate_limited(self) -> server.Reply:
        """How a call too many is refused."""
        reply = self.error(status=None, code="rate_limit_exceeded", message="limit of 3600 an hour")
        return dataclasses.replace(reply, headers=self.budget_headers())

    def mutations(self) -> collections.Counter[str]:
        """How often each changing call came."""
        return collections.Counter(
            one.name for one in self.ledger.seen if one.method not in {"GET", "HEAD"}
        )
