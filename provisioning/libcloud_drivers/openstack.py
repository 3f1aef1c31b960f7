"""OpenStack (Nova, microversion 2.1) through libcloud: `ex_userdata` and `ex_metadata`.

libcloud writes the order, first-boot data encoded once; its `create_node` is not used, since it
asks for the new machine in the same breath: a lag there would make a done order look refused.

No OpenStack tells prices: what a core costs by the hour is the operator's own word, a setting of
the connection; without it no order can be held against a cap of money.

Known limit: no volumes, floating addresses or key pairs.
"""

import decimal
import types
from collections.abc import Mapping
from typing import Any, Final

from provisioning import answers, contract, credentials, naming, outcomes, providers
from provisioning.libcloud_drivers import adapter, keystone, reading

_FEATURE = contract.Feature
_Call = contract.ApiCall
AUTHENTICATE: Final = keystone.AUTHENTICATE
LIMITS: Final = _Call(name="GET /limits", feature=_FEATURE.CHECK, right="compute: reader")
FLAVORS: Final = _Call(
    name="GET /flavors/detail", feature=_FEATURE.CATALOG, right="compute: reader"
)
IMAGES: Final = _Call(name="GET /v2/images", feature=_FEATURE.CATALOG, right="image: reader")
LIST: Final = _Call(name="GET /servers/detail", feature=_FEATURE.MACHINES, right="compute: reader")
GET: Final = _Call(name="GET /servers/{id}", feature=_FEATURE.MACHINES, right="compute: reader")
CREATE: Final = _Call(
    name="POST /servers",
    feature=_FEATURE.MACHINES,
    right="compute: member",
    changes=True,
    costs=True,
)
DELETE: Final = _Call(
    name="DELETE /servers/{id}",
    feature=_FEATURE.MACHINES,
    right="compute: member",
    changes=True,
)
REBOOT: Final = _Call(
    name="POST /servers/{id}/action",
    feature=_FEATURE.MACHINES,
    right="compute: member",
    changes=True,
)
_PAGE: Final = 100

_POWER: Final = {
    "BUILD": contract.Power.STARTING,
    "REBUILD": contract.Power.STARTING,
    "ACTIVE": contract.Power.RUNNING,
    "REBOOT": contract.Power.RUNNING,
    "HARD_REBOOT": contract.Power.RUNNING,
    "PASSWORD": contract.Power.RUNNING,
    "SHUTOFF": contract.Power.OFF,
    "SUSPENDED": contract.Power.OFF,
    "PAUSED": contract.Power.OFF,
    "SHELVED": contract.Power.OFF,
    "SHELVED_OFFLOADED": contract.Power.OFF,
    "DELETED": contract.Power.DELETING,
    "SOFT_DELETED": contract.Power.DELETING,
    "ERROR": contract.Power.FAILED,
}


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this application credential; nothing is called yet."""
    if not isinstance(opening.credential, credentials.OpenstackApplication):
        raise providers.Refused("OpenStack is opened with an application credential.")
    network = opening.settings.get("network")
    return adapter.Driver(
        OpenStack(
            keystone.Connection(opening, opening.credential),
            region=str(opening.settings["region"]),
            network=None if network is None else str(network),
            core_price=_core_price(opening.settings),
        )
    )


class OpenStack:
    """One region of an OpenStack as the adapter sees it."""

    provider = "openstack"
    capabilities = frozenset(
        {
            contract.Capability.CUSTOM_IMAGE,
            contract.Capability.NETWORKS,
            contract.Capability.REBOOT,
        }
    )
    calls = tuple(one for one in dict(globals()).values() if isinstance(one, _Call))

    def __init__(
        self,
        connection: keystone.Connection,
        *,
        region: str,
        network: str | None,
        core_price: contract.Price | None,
    ) -> None:
        self._connection = connection
        self._core_price = core_price
        self._region = region
        self._network = network

    async def account(self) -> contract.Validation:
        """The project behind the credential, and how many more machines it allows."""
        told = await self._connection.send(LIMITS, "/limits")
        limits = reading.within(LIMITS, reading.within(LIMITS, told, "limits"), "absolute")
        most, used = limits.get("maxTotalInstances"), limits.get("totalInstancesUsed")
        room: int | None = None
        if isinstance(most, int) and isinstance(used, int) and most >= 0:
            room = max(0, most - used)
        driver = self._connection.driver
        user = driver.connection.auth_user_info or {}
        return contract.Validation(
            account=str(user.get("id") or driver.key),
            principal=str(driver.key),
            unproved=("compute: member",),
            room=room,
        )

    async def offer(self) -> contract.Offer:
        """Flavors and the names of images."""
        sizes = tuple(
            contract.Size(
                name=str(one["name"]),
                cores=int(one["vcpus"]),
                memory_bytes=int(one["ram"]) * 2**20,
                disk_bytes=int(one["disk"]) * 2**30,
                architecture="x86_64",
                regions=(self._region,),
                prices=self._prices(int(one["vcpus"])),
            )
            for one in await self._flavors()
        )
        images = tuple(sorted(str(one["name"]) for one in await self._images()))
        return contract.Offer(regions=(self._region,), sizes=sizes, images=images)

    async def settle(self, request: contract.Request) -> contract.Plan:
        """Whether flavor and image are there."""
        refusals = []
        if request.region != self._region:
            refusals.append(
                f"This connection is to the region {self._region}, not to {request.region}."
            )
        flavors = await self._flavors()
        for what, wanted, rows in (
            ("flavor", request.size, flavors),
            ("image", request.image, await self._images()),
        ):
            if _ref_of(rows, wanted) is None:
                refusals.append(f"This cloud has no {what} {wanted}.")
        cores = [int(one["vcpus"]) for one in flavors if request.size in {one["name"], one["id"]}]
        return contract.Plan(
            refusals=tuple(refusals),
            price=self._prices(cores[0]).get("") if len(cores) == 1 else None,
        )

    async def order(self, request: contract.Request) -> dict[str, Any]:
        """One POST with libcloud's own body; what Nova tells of the new machine is little."""
        flavor = _ref_of(await self._flavors(), request.size)
        image = _ref_of(await self._images(), request.image)
        if flavor is None or image is None:
            raise outcomes.Fault(
                f"This cloud has no flavor {request.size} or no image {request.image}.",
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.CATALOGUE,
            )
        network = request.subnet or request.network or self._network
        driver = self._connection.driver
        server = driver._create_args_to_params(  # noqa: SLF001 - see above: without the second call
            None,
            name=request.name,
            size=types.SimpleNamespace(id=flavor),
            image=types.SimpleNamespace(id=image),
            networks=[types.SimpleNamespace(id=network)] if network else [],
            ex_availability_zone=request.zone,
            ex_config_drive=True,
            ex_metadata=dict(naming.tags_of(request.owner)),
            ex_userdata=request.first_boot,
        )
        told = await self._connection.send(
            CREATE,
            "/servers",
            body={"server": server},
            hide=reading.as_sent(request.first_boot),
        )
        made = reading.within(CREATE, told, "server")
        return {
            "id": made["id"],
            "name": request.name,
            "status": "BUILD",
            "metadata": dict(naming.tags_of(request.owner)),
        }

    async def machines(self) -> list[dict[str, Any]]:
        """All servers of the project, all pages."""
        found: dict[str, dict[str, Any]] = {}
        params: dict[str, Any] = {"limit": _PAGE}
        for _ in range(adapter.MOST_PAGES):
            body = reading.body(
                LIST, await self._connection.send(LIST, "/servers/detail", params=params)
            )
            rows = body.get("servers")
            if not isinstance(rows, list):
                raise answers.unanswered(LIST.name, "a success without servers")
            found |= {str(row["id"]): row for row in rows}
            links = body.get("servers_links") or []
            if not rows or not any(one.get("rel") == "next" for one in links):
                return list(found.values())
            params = {"limit": _PAGE, "marker": str(rows[-1]["id"])}
        raise answers.unanswered(LIST.name, f"more than {adapter.MOST_PAGES} pages")

    async def machine(self, ref: str) -> dict[str, Any]:
        """This server."""
        return reading.within(GET, await self._connection.send(GET, f"/servers/{ref}"), "server")

    async def remove(self, ref: str) -> None:
        """Has it deleted."""
        await self._connection.send(DELETE, f"/servers/{ref}")

    async def restart(self, ref: str) -> None:
        """Restarts it, asking its system first."""
        await self._connection.send(
            REBOOT, f"/servers/{ref}/action", body={"reboot": {"type": "SOFT"}}
        )

    def read(self, machine: dict[str, Any]) -> contract.Instance:
        """A server's JSON as our value."""
        state = str(machine.get("status", ""))
        fault = machine.get("fault") or {}
        nets = [net for nets in (machine.get("addresses") or {}).values() for net in nets]
        image = machine.get("image")
        return contract.Instance(
            ref=str(machine["id"]),
            name=str(machine.get("name", "")),
            region=self._region,
            power=_POWER.get(state, contract.Power.UNKNOWN),
            raw_state=state,
            zone=machine.get("OS-EXT-AZ:availability_zone"),
            instance_id=str(machine["id"]),
            owner=naming.owner_of(machine.get("metadata") or {}),
            size=str((machine.get("flavor") or {}).get("original_name", "")),
            image=str(image.get("id", "")) if isinstance(image, dict) else "",
            addresses=tuple(str(net["addr"]) for net in nets),
            created_at=reading.moment(machine.get("created")),
            failure=str(fault["message"]) if "message" in fault else None,
            failure_code=str(fault.get("code", "")),
        )

    async def close(self) -> None:
        """Gives its thread back."""
        await self._connection.close()

    def _prices(self, cores: int) -> Mapping[str, contract.Price]:
        one = self._core_price
        if one is None:
            return {}
        return {"": contract.Price(hourly_micros=cores * one.hourly_micros, currency=one.currency)}

    async def _flavors(self) -> list[Mapping[str, Any]]:
        body = reading.body(FLAVORS, await self._connection.send(FLAVORS, "/flavors/detail"))
        rows: list[Mapping[str, Any]] = body.get("flavors") or []
        return rows

    async def _images(self) -> list[Mapping[str, Any]]:
        told = await self._connection.send(
            IMAGES, "/v2/images", params={"status": "active", "limit": _PAGE}, of_images=True
        )
        rows: list[Mapping[str, Any]] = reading.body(IMAGES, told).get("images") or []
        return rows


def _ref_of(rows: list[Mapping[str, Any]], wanted: str) -> str | None:
    """The id of what is called so or has this id; of several with one name, none."""
    refs = {str(one["id"]) for one in rows if wanted in {one.get("name"), one["id"]}}
    return refs.pop() if len(refs) == 1 else None


def _core_price(settings: Mapping[str, Any]) -> contract.Price | None:
    """What the operator says that a core costs by the hour.

    Raises:
        providers.Refused: it is no amount, or its currency is missing.
    """
    if settings.get("core_hourly") is None:
        return None
    try:
        amount = decimal.Decimal(str(settings["core_hourly"]))
    except decimal.InvalidOperation:
        amount = decimal.Decimal(-1)
    if not (amount.is_finite() and amount >= 0) or not settings.get("currency"):
        raise providers.Refused(
            "core_hourly is what a core costs by the hour, such as 0.01, and needs a currency."
        )
    return contract.Price(
        hourly_micros=round(amount * 1_000_000), currency=str(settings["currency"])
    )
