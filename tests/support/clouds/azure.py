"""An Azure of our own: one resource group behind a resource manager, and Entra's token door.

What is accepted takes time and is followed by an operation; parts refuse to stand on parts that are
not done; deleting goes down the flags that were set (or, with `cascades` off, leaves everything but
the machine behind); a role on the group does not reach the subscription.

Known limit: one location an object, no zones, no quotas but cores and machines.
"""

import dataclasses
import datetime
import itertools
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from runtime_kit import clock as clock_kit
from tests.support.clouds import azure_entra, azure_lives, azure_rules, azure_subscription, server
from tests.support.clouds import azure_things as things
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

PAGE: Final = 100
TAKES_SECONDS: Final = 20.0
_ONE: Final = re.compile(
    rf"{things.PATH}/providers/(?P<kind>Microsoft\.\w+/\w+)(?:/(?P<name>[^/]+))?(?P<verb>/\w+)?",
    re.IGNORECASE,
)
_OPERATION: Final = re.compile(
    rf"/subscriptions/{things.SUBSCRIPTION}/providers/(?:[\w.]+)/locations/\w+/operations/(?P<id>[\w-]+)"
)
STATUS: Final = {
    "PreconditionFailed": 412,
    "ResourceNotFound": 404,
    "NotFound": 404,
    "ResourceGroupNotFound": 404,
    "PlatformImageNotFound": 404,
    "AuthorizationFailed": 403,
    "LinkedAuthorizationFailed": 403,
    "InvalidAuthenticationToken": 401,
    "QuotaExceeded": 409,
    "OperationNotAllowed": 409,
    "SkuNotAvailable": 409,
    "AllocationFailed": 409,
    "AnotherOperationInProgress": 409,
    "ReferencedResourceNotProvisioned": 409,
    "TooManyRequests": 429,
    "RetryableErrorDueToAnotherOperation": 429,
    "InternalServerError": 500,
    "server_error": 504,
}


class Azure:
    """The fake; serve it with `server.Served`."""

    def __init__(self, *, clock: clock_kit.Clock) -> None:
        self.clock = clock
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.entra = azure_entra.Entra(self.now)
        self.subscription = azure_subscription.Subscription()
        self.grants: list[dict[str, list[str]]] = [{"actions": ["*"], "notActions": []}]
        self.cascades = True  # whether the flags to delete along are obeyed
        self.nic_reserved = 0.0  # seconds for which a failed machine's card cannot be deleted
        self.held: dict[str, things.Resource] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.asked_rights: set[str] = set()
        self._count = itertools.count(1)
        self._host = ""

    # --- what a test does by hand --------------------------------------------------------------

    def now(self) -> datetime.datetime:
        """The fake's own time."""
        return self.script.now(self.clock)

    def settle(self) -> None:
        """Lets everything under way come to its end."""
        while any(one.due is not None for one in self.held.values()):
            self._advance(until=None)

    def plant(self, *, name: str, tags: Mapping[str, str], region: str = "eastus") -> str:
        """A machine that somebody else made."""
        properties = {
            "hardwareProfile": {"vmSize": "Standard_B2s"},
            "storageProfile": {"osDisk": {"name": f"{name}-os"}, "dataDisks": []},
            "osProfile": {"computerName": name, "adminUsername": "somebody"},
            "networkProfile": {"networkInterfaces": []},
            "vmId": str(uuid.UUID(int=next(self._count))),
        }
        body = {"location": region, "tags": dict(tags), "properties": properties}
        one = self.add(things.VM, name, body)
        one.state, one.power = "Succeeded", "running"
        return one.ref

    def add(self, kind: str, name: str, body: Mapping[str, Any]) -> things.Resource:
        """Puts a thing there at once, as a finished one."""
        one = things.Resource(
            kind=kind,
            name=name,
            body={"tags": {}, **json.loads(json.dumps(body))},
            born=self.now(),
        )
        one.body["properties"].setdefault("provisioningState", "Succeeded")
        self.held[one.ref.lower()] = one
        self._enter(one)
        return one

    def of(self, kind: str) -> list[things.Resource]:
        """All of this kind."""
        return [one for one in self.held.values() if one.kind == kind]

    # --- the server's side ---------------------------------------------------------------------

    def name_of(self, asked: server.Asked) -> str:
        """The call's name in the driver's table."""
        if azure_entra.PATH.fullmatch(asked.path):
            return f"{asked.method} oauth2/v2.0/token"
        if _OPERATION.fullmatch(asked.path):
            return f"{asked.method} operations"
        if asked.path.lower() == things.PATH.lower():
            return f"{asked.method} resourceGroups"
        found = _ONE.fullmatch(asked.path)
        if found is not None:
            return f"{asked.method} {found['kind']}{found['verb'] or ''}"
        return self.subscription.name_of(asked)

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work."""
        self._host = asked.headers.get("host", "")
        if name.endswith("oauth2/v2.0/token"):
            return self.entra.answer(asked)
        if not self.entra.knows(asked.headers.get("authorization", "")):
            return self.unauthorized()
        self._advance(until=self.now())
        try:
            return self._routed(asked, name=name, async_fail=async_fail)
        except things.Refused as refusal:
            return self.error(status=refusal.status, code=refusal.code, message=refusal.message)

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """An error of the resource manager."""
        document = {"error": {"code": code, "message": message}}
        return server.Reply(status=status or STATUS.get(code, 400), document=document)

    def unauthorized(self) -> server.Reply:
        """How a dead token is refused."""
        reply = self.error(
            status=401, code="InvalidAuthenticationToken", message="The access token is invalid."
        )
        challenge = 'Bearer authorization_uri="https://login.windows.net/", error="invalid_token"'
        return dataclasses.replace(reply, headers={"www-authenticate": challenge})

    def rate_limited(self) -> server.Reply:
        """A call too many; without Retry-After, as happens."""
        return self.error(status=429, code="TooManyRequests", message="The request is throttled.")

    # --- routes --------------------------------------------------------------------------------

    def _routed(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        if not asked.first("api-version"):
            raise things.Refused("MissingApiVersionParameter", "The api-version is required.")
        operation = _OPERATION.fullmatch(asked.path)
        if operation is not None:
            told = self.operations.get(operation["id"])
            if told is None:
                raise things.Refused("NotFound", "The operation is not known any more.")
            return server.Reply(document=told)
        found = _ONE.fullmatch(asked.path)
        if name.endswith(" resourceGroups"):
            self._allow("Microsoft.Resources/subscriptions/resourceGroups/read")
            document = {"id": things.PATH, "name": things.RESOURCE_GROUP, "location": "eastus",
                        "properties": {"provisioningState": "Succeeded"}}  # fmt: skip
            return server.Reply(document=document)
        if name == "GET Microsoft.Authorization/permissions":
            self._allow("Microsoft.Authorization/permissions/read")
            return server.Reply(document={"value": self.grants})
        if found is None:
            return self.subscription.answer(asked, refused=things.Refused)
        self._allow(azure_rules.right_of(asked.method, found["kind"], found["verb"]))
        if found["name"] is None:
            return self._list(found["kind"], asked)
        return self._one(asked, found["kind"], found["name"], found["verb"], async_fail)

    def _one(
        self,
        asked: server.Asked,
        kind: str,
        name: str,
        verb: str | None,
        async_fail: script_kit.Armed | None,
    ) -> server.Reply:
        ref = f"{things.PATH}/providers/{kind}/{name}".lower()
        there = self.held.get(ref)
        if asked.method == "PUT":
            return self._put(asked, kind, name, there, async_fail)
        if there is None:
            if asked.method == "DELETE":
                return server.Reply(status=204)
            raise things.Refused("ResourceNotFound", f"The Resource '{kind}/{name}' was not found.")
        lag = datetime.timedelta(seconds=self.script.describe_lag)
        if asked.method == "GET" and kind == things.VM and self.now() < there.born + lag:
            raise things.Refused("ResourceNotFound", f"The Resource '{kind}/{name}' was not found.")
        if asked.method == "GET":
            return server.Reply(document=self._shown(there, asked), headers=self._reads())
        if asked.method == "DELETE":
            return self._delete(there)
        if asked.method == "POST" and verb == "/restart":
            return self._accepted(there, status=202, document=None)
        return self._patch(there, asked)

    def _put(
        self,
        asked: server.Asked,
        kind: str,
        name: str,
        there: things.Resource | None,
        async_fail: script_kit.Armed | None,
    ) -> server.Reply:
        if there is not None and asked.headers.get("if-none-match") == "*":
            raise things.Refused("PreconditionFailed", f"The resource {name} exists already.")
        if there is not None and there.is_dying:
            raise things.Refused("AnotherOperationInProgress", f"{name} is being deleted.")
        body = asked.json()
        for right in azure_rules.linked_rights(kind, body):
            self._allow(right, linked=True)
        azure_rules.check(self, kind, name, body, there=there)
        status = 200 if there is not None else 201
        one = there or things.Resource(kind=kind, name=name, body={}, born=self.now())
        azure_lives.make(self, one, body)
        one.body.setdefault("tags", {})
        one.fails = async_fail
        self.held[one.ref.lower()] = one
        self._enter(one)
        return self._accepted(one, status=status, document=self._shown(one, asked))

    def _patch(self, there: things.Resource, asked: server.Asked) -> server.Reply:
        told = asked.json()["properties"]["storageProfile"]["dataDisks"]
        azure_lives.set_disks(self, there, told)
        return self._accepted(there, status=200, document=self._shown(there, asked))

    def _delete(self, there: things.Resource) -> server.Reply:
        holder = azure_rules.holder(self, there)
        if holder is not None:
            raise things.Refused(*holder)
        if there.reserved_until is not None and self.now() < there.reserved_until:
            message = f"Nic {there.name} is reserved for another Virtual Machine for 180 seconds."
            raise things.Refused("NicReservedForAnotherVm", message)
        there.is_dying = True
        there.state = "Deleting"
        return self._accepted(there, status=202, document=None)

    def _list(self, kind: str, asked: server.Asked) -> server.Reply:
        lag = datetime.timedelta(seconds=self.script.list_lag)
        shown = [one for one in self.of(kind) if self.now() >= one.born + lag]
        size = self.script.page_size or PAGE
        start = int(asked.first("$skiptoken", "0"))
        rows = [self._shown(one, asked) for one in shown[start : start + size]]
        document: dict[str, Any] = {"value": rows}
        if start + size < len(shown):
            version = asked.first("api-version")
            document["nextLink"] = (
                f"http://{self._host}{asked.path}?api-version={version}&$skiptoken={start + size}"
            )
        return server.Reply(document=document, headers=self._reads())

    # --- time and rights -----------------------------------------------------------------------

    def _accepted(self, one: things.Resource, *, status: int, document: Any) -> server.Reply:
        takes = azure_lives.takes_seconds(one, usual=TAKES_SECONDS)
        ref = str(uuid.UUID(int=next(self._count) + (1 << 96)))
        self.operations[ref] = {"status": "InProgress"}
        one.operation = ref
        one.due = self.now() + datetime.timedelta(seconds=takes)
        space = one.kind.partition("/")[0]
        link = (
            f"http://{self._host}/subscriptions/{things.SUBSCRIPTION}/providers/{space}"
            f"/locations/{one.body.get('location', 'eastus')}/operations/{ref}"
            "?api-version=2024-07-01"
        )
        return server.Reply(
            status=status, document=document, headers={"azure-asyncoperation": link}
        )

    def _advance(self, *, until: datetime.datetime | None) -> None:
        """Ends what is due by then; with `until` None all that is under way now."""
        for one in list(self.held.values()):
            if one.due is None or (until is not None and one.due > until):
                continue
            one.due = None
            azure_lives.finish(self, one)
        for one in self.of(things.VM):
            self._enter(one)

    def forget(self, one: things.Resource) -> None:
        """It is gone."""
        self.held.pop(one.ref.lower(), None)
        entry = self.ledger.machines.get(one.ref) or self.ledger.things.get(one.ref)
        if entry is not None:
            entry.died = self.now()

    def _enter(self, one: things.Resource) -> None:
        azure_lives.enter(self.ledger, one, born=one.born)

    def _allow(self, right: str, *, linked: bool = False) -> None:
        self.asked_rights.add(right)
        if not any(azure_rules.grants(one, right) for one in self.grants):
            code = "LinkedAuthorizationFailed" if linked else "AuthorizationFailed"
            raise things.Refused(
                code, f"The client does not have authorization to perform '{right}'."
            )

    def _reads(self) -> Mapping[str, str]:
        return {"x-ms-ratelimit-remaining-subscription-reads": "11998"}

    def _shown(self, one: things.Resource, asked: server.Asked) -> dict[str, Any]:
        with_view = asked.first("$expand") == "instanceView"
        return azure_lives.shown(one, with_view=with_view)
