"""The contract spoken to UpCloud.

There is no idempotency key, and neither title nor hostname is unique, so the labels are all we
have; absence is believed late, and a look-up counts servers in maintenance and disks without a
server. Ending a server is a walk of its own (`ending.py`).

Known limit: a new server shows no more than `maintenance`, then `started`; why one ends in `error`
is not told.
"""

import datetime
import re
from collections.abc import Sequence
from typing import Any, Final

from provisioning import answers, contract, naming, outcomes, providers, shaped
from provisioning.upcloud import calls, children, ending, ordering, planning, reading
from provisioning.upcloud import client as client_kit
from runtime_kit import clock as clock_kit

_CAPABILITIES: Final = frozenset(
    {
        contract.Capability.ADDRESSES,
        contract.Capability.CUSTOM_IMAGE,
        contract.Capability.PRICE,
        contract.Capability.REBOOT,
        contract.Capability.SNAPSHOTS,
        contract.Capability.SSH_KEY,
        contract.Capability.VOLUMES,
    }
)
_LOOKUP: Final = contract.LookupRules(clean_answers=3, settle=datetime.timedelta(minutes=5))
_NEVER: Final = "never"
_REF: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_RESTART_SECONDS: Final = 60


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this account; nothing is called yet."""
    return Driver(
        client_kit.Client(opening),
        clock=opening.clock,
        currency=str(opening.settings.get("currency", "EUR")),
    )


class Driver:
    """One account at UpCloud."""

    def __init__(self, client: client_kit.Client, *, clock: clock_kit.Clock, currency: str) -> None:
        self._client = client
        self._clock = clock
        self._currency = currency

    @property
    def provider(self) -> str:
        """`upcloud`."""
        return "upcloud"

    @property
    def capabilities(self) -> frozenset[contract.Capability]:
        """What can be done beyond the core."""
        return _CAPABILITIES

    @property
    def calls(self) -> Sequence[contract.ApiCall]:
        """Every call it can make."""
        return calls.ALL

    @property
    def lookup(self) -> contract.LookupRules:
        """Three clean answers over five minutes."""
        return _LOOKUP

    async def validate(self) -> contract.Validation:
        """Account, credit, limits, and what is not permitted."""
        with shaped.reading("What UpCloud tells of its offer"):
            return await planning.validate(self._client)

    async def offer(self) -> contract.Offer:
        """Plans with their prices by zone, and templates."""
        with shaped.reading("What UpCloud tells of its offer"):
            return await planning.offer(self._client, currency=self._currency)

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Whether this order can work; image and disk are settled by what UpCloud has."""
        with shaped.reading("What UpCloud tells of its offer"):
            return await planning.plan(self._client, request, currency=self._currency)

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order, once."""
        if planning.is_address(request.first_boot):
            raise _refused("First-boot data that begins with an address is not sent to UpCloud.")
        image = await planning.find_image(self._client, request.image)
        if image is None:
            raise _refused(f"UpCloud has no template {request.image} that carries cloud-init.")
        body = await self._client.send(
            calls.CREATE,
            "/1.3/server",
            body={"server": ordering.body_of(request, image=image)},
            hide=(request.first_boot,),
        )
        with shaped.reading(calls.CREATE.name):
            instance = reading.instance(client_kit.within(calls.CREATE, body, "server"))
        return contract.Created(ref=instance.ref, children=instance.children, instance=instance)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """Over once it has left maintenance; in state error the order has failed."""
        try:
            server = await self._get(created.ref)
        except outcomes.Fault as fault:
            raise answers.of_asking(fault) from None
        state = None if server is None else server.get("state")
        if state == "error":
            raise outcomes.Fault(
                "UpCloud accepted the order, and the server went into state error.",
                outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
                topic=outcomes.Topic.CAPACITY,
                code="state_error",
                ref=created.ref,
            )
        running = state in {None, "maintenance"}
        return contract.Progress.RUNNING if running else contract.Progress.DONE

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By label of the operation, by title, and by disks that have no server."""
        del region  # servers are looked up over all zones
        rows = [
            *await self._list(label=f"{naming.OPERATION}={owner.operation}"),
            *(row for row in await self._list() if row.get("title") == name),
        ]
        seen = {one.ref: one for one in _instances(rows)}
        if not seen:
            return await self._of_disks(owner, name=name)
        return contract.Sightings(instances=tuple(seen.values()))

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The server with its disks and addresses."""
        del region
        server = await self._get(ref)
        if server is None:
            return None
        with shaped.reading(calls.GET.name):
            return reading.instance(server)

    async def delete(self, ref: str, *, region: str) -> None:
        """Stops it, takes data off it, and has it deleted with its own disk."""
        del region
        if not ref.startswith(f"{_NEVER}:"):
            _require(ref)
            await ending.delete(self._client, ref, clock=self._clock)

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it; one that does not end by itself within a minute is switched off and on."""
        del region
        _require(ref)
        order = {
            "stop_type": "soft",
            "timeout": str(_RESTART_SECONDS),
            "timeout_action": "destroy",
        }
        await self._client.send(
            calls.RESTART, f"/1.3/server/{ref}/restart", body={"restart_server": order}
        )

    async def inventory(self, installation: str) -> contract.Inventory:
        """All that carries this installation's label, and storages by their titles."""
        rows = await self._list(label=f"{naming.INSTALLATION}={installation}")
        machines = {
            one.ref: one
            for one in _instances(rows)
            if one.owner is not None and one.owner.installation == installation
        }
        ours = tuple(
            child
            for child in (
                *await children.storages(self._client),
                *await children.addresses(self._client),
            )
            if (child.owner is not None and child.owner.installation == installation)
            or (child.owner is None and child.attached_to in machines)
        )
        budget = self._client.budget
        return contract.Inventory(
            machines=tuple(machines.values()),
            children=ours,
            calls_left=None if budget is None else budget.left,
            calls_most=None if budget is None else budget.most,
        )

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now; None where it is gone."""
        return await children.describe(self._client, child)

    async def delete_child(self, child: contract.Child) -> None:
        """Has it deleted; in use yet: try later."""
        await children.delete(self._client, child)

    async def create_child(
        self,
        kind: contract.ChildKind,
        *,
        owner: contract.Owner,
        name: str,
        region: str,
        size_gigabytes: int | None = None,
        of: str | None = None,
    ) -> contract.Child:
        """A volume, a backup of a machine's disk or of a volume, or a floating address."""
        return await children.create(
            self._client,
            kind,
            owner=owner,
            name=name,
            region=region,
            size_gigabytes=size_gigabytes,
            of=of,
        )

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives the volume or address to the machine."""
        await children.attach(self._client, child, to=to)

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it."""
        await children.detach(self._client, child)

    async def console(self, ref: str, *, region: str) -> str | None:
        """UpCloud shows none by API."""
        del ref, region
        return None

    async def close(self) -> None:
        """Gives its connections back."""
        await self._client.close()

    async def _get(self, ref: str) -> dict[str, Any] | None:
        if ref.startswith(f"{_NEVER}:"):
            return None
        _require(ref)
        return await self._client.find(calls.GET, f"/1.3/server/{ref}", "server")

    async def _list(self, *, label: str = "") -> list[dict[str, Any]]:
        return await self._client.every(
            calls.LIST, "/1.3/server", ("servers", "server"), label=label
        )

    async def _of_disks(self, owner: contract.Owner, *, name: str) -> contract.Sightings:
        """What disks of this very attempt tell where no list shows their server."""
        disks = [
            child
            for child in await children.storages(self._client)
            if child.owner == owner and child.kind is contract.ChildKind.DISK
        ]
        left: list[contract.Child] = []
        for disk in disks:
            now = await children.describe(self._client, disk)
            server = None if now is None else now.attached_to
            if server is not None:  # it is there, and the lists lag behind it
                seen = await self.describe(server, region="")
                return contract.Sightings(
                    instances=() if seen is None else (seen,), is_complete=seen is not None
                )
            left.extend([] if now is None else [now])
        if not left:
            return contract.Sightings(instances=())
        half = contract.Instance(
            ref=f"{_NEVER}:{name}",
            name=name,
            region=left[0].region,
            power=contract.Power.FAILED,
            raw_state="absent",
            owner=owner,
            children=tuple(left),
            failure="Only its disk was made.",
        )
        return contract.Sightings(instances=(half,))


def _instances(rows: list[dict[str, Any]]) -> list[contract.Instance]:
    with shaped.reading(calls.LIST.name):
        return [reading.instance(row) for row in rows]


def _refused(sentence: str) -> outcomes.Fault:
    return outcomes.Fault(
        sentence, outcome=outcomes.Outcome.NOT_DONE_PERMANENT, topic=outcomes.Topic.INPUT
    )


def _require(ref: str) -> None:
    outcomes.require_ref(_REF, ref, provider="UpCloud")
