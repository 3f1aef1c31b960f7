"""Vultr, API v2, through libcloud: `ex_userdata` and `ex_tag`.

There is one tag, so it is the owner's line whole. libcloud encodes the first-boot data itself.

Known limit: prices are told by the month; the hourly ones are a 672nd of them, as Vultr bills.
"""

import json
import types
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from libcloud.compute import base as libcloud_base
from libcloud.compute.drivers import vultr as libcloud_driver

from provisioning import answers, contract, credentials, libcloud_link, packed_owner, providers
from provisioning.libcloud_drivers import adapter, errors, reading

ADDRESS: Final = "https://api.vultr.com"
RAISE_LIMIT: Final = "https://my.vultr.com/support/"
_PAGE: Final = 500
_HOURS_A_MONTH: Final = 672

_FEATURE = contract.Feature
_Call = contract.ApiCall
ACCOUNT: Final = _Call(name="GET /v2/account", feature=_FEATURE.CHECK, right="billing: view")
PLANS: Final = _Call(name="GET /v2/plans", feature=_FEATURE.CATALOG)
SYSTEMS: Final = _Call(name="GET /v2/os", feature=_FEATURE.CATALOG)
LIST: Final = _Call(
    name="GET /v2/instances", feature=_FEATURE.MACHINES, right="subscriptions: view"
)
GET: Final = _Call(
    name="GET /v2/instances/{id}", feature=_FEATURE.MACHINES, right="subscriptions: view"
)
CREATE: Final = _Call(
    name="POST /v2/instances",
    feature=_FEATURE.MACHINES,
    right="provisioning",
    changes=True,
    costs=True,
)
DELETE: Final = _Call(
    name="DELETE /v2/instances/{id}",
    feature=_FEATURE.MACHINES,
    right="subscriptions",
    changes=True,
)
REBOOT: Final = _Call(
    name="POST /v2/instances/{id}/reboot",
    feature=_FEATURE.MACHINES,
    right="subscriptions",
    changes=True,
)


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this key; nothing is called yet."""
    if not isinstance(opening.credential, credentials.Token):
        raise providers.Refused("Vultr is opened with an API key, as kind token.")
    return adapter.Driver(Vultr(opening, opening.credential))


class _Driver(libcloud_driver.VultrNodeDriverV2):  # type: ignore[misc]
    def _to_node(self, data: Any) -> Any:
        return data


class Vultr:
    """Vultr as the adapter sees it."""

    provider = "vultr"
    capabilities = frozenset({contract.Capability.PRICE, contract.Capability.REBOOT})
    calls = tuple(one for one in dict(globals()).values() if isinstance(one, _Call))

    def __init__(self, opening: providers.Opening, credential: credentials.Token) -> None:
        self._token = credential.token
        self._link = libcloud_link.Link(
            observer=opening.observer,
            clock=opening.clock,
            read=errors.read,
            judge=errors.judging(RAISE_LIMIT),
            limits=opening.limits,
        )
        connection = self._link.guarded(
            _Driver.connectionCls, add_default_params=lambda _self, params: params
        )
        driver_class: Any = type("Driver", (_Driver,), {"connectionCls": connection})
        self._driver: Any = driver_class(self._token.reveal())
        libcloud_link.aim(self._driver.connection, opening.endpoints.get("", ADDRESS))

    async def account(self) -> contract.Validation:
        """The account behind the key, and what its key may do."""
        account = reading.within(ACCOUNT, await self._send(ACCOUNT, "/v2/account"), "account")
        await self._send(LIST, "/v2/instances", per_page=1)
        held = account.get("acls")
        needed = {"subscriptions", "provisioning"}
        return contract.Validation(
            account=str(account["email"]),
            principal=str(account["name"]),
            missing=tuple(sorted(needed - set(held))) if isinstance(held, list) else (),
        )

    async def offer(self) -> contract.Offer:
        """Plans with their prices and places, and systems."""
        sizes = tuple(_size(one) for one in await self._every(PLANS, "/v2/plans", "plans"))
        systems = await self._every(SYSTEMS, "/v2/os", "os")
        return contract.Offer(
            regions=tuple(sorted({region for one in sizes for region in one.regions})),
            sizes=sizes,
            images=tuple(str(one["id"]) for one in systems),
        )

    async def settle(self, request: contract.Request) -> contract.Plan:
        """Whether the plan is to be had there, and the system is known."""
        offer = await self.offer()
        size = next((one for one in offer.sizes if one.name == request.size), None)
        refusals = []
        if size is None:
            refusals.append(f"Vultr has no plan {request.size}.")
        elif request.region not in size.regions:
            has = ", ".join(size.regions) or "no region"
            refusals.append(f"The plan {request.size} is not in {request.region}, only in: {has}.")
        if request.image not in offer.images:
            refusals.append(f"Vultr has no system with the number {request.image}.")
        return contract.Plan(
            refusals=tuple(refusals), price=None if size is None else size.prices[""]
        )

    async def order(self, request: contract.Request) -> dict[str, Any]:
        """One POST, made by libcloud."""
        told = await self._link.run(
            CREATE,
            lambda: self._driver.create_node(
                name=request.name,
                size=libcloud_base.NodeSize(request.size, "", 0, 0, 0, 0, self._driver),
                location=libcloud_base.NodeLocation(request.region, "", "", self._driver),
                image=types.SimpleNamespace(id=_number(request.image)),  # theirs makes it text
                ex_enable_ipv6=request.public_ipv6,
                ex_hostname=request.name,
                ex_tag=packed_owner.as_line(request.owner),
                ex_userdata=request.first_boot,
            ),
            hide=(self._token.reveal(), *reading.as_sent(request.first_boot)),
        )
        return reading.within(CREATE, told.body, "instance")

    async def machines(self) -> list[dict[str, Any]]:
        """All instances, all pages."""
        return await self._every(LIST, "/v2/instances", "instances")

    async def machine(self, ref: str) -> dict[str, Any]:
        """This instance."""
        return reading.within(GET, await self._send(GET, f"/v2/instances/{ref}"), "instance")

    async def remove(self, ref: str) -> None:
        """Has it deleted."""
        await self._send(DELETE, f"/v2/instances/{ref}")

    async def restart(self, ref: str) -> None:
        """Restarts it."""
        await self._send(REBOOT, f"/v2/instances/{ref}/reboot", body={})

    def read(self, machine: dict[str, Any]) -> contract.Instance:
        """An instance's JSON as our value."""
        told = (machine.get("main_ip"), machine.get("v6_main_ip"))
        tags = [str(one) for one in [machine.get("tag"), *(machine.get("tags") or [])] if one]
        owners = (packed_owner.owner_of_line(one) for one in tags)
        return contract.Instance(
            ref=str(machine["id"]),
            name=str(machine.get("label", "")),
            region=str(machine.get("region", "")),
            power=_power(machine),
            raw_state=f"{machine.get('status', '')}/{machine.get('power_status', '')}",
            instance_id=str(machine["id"]),
            owner=next((one for one in owners if one is not None), None),
            size=str(machine.get("plan", "")),
            image=str(machine.get("os_id", "")),
            addresses=tuple(str(one) for one in told if one and one != "0.0.0.0"),  # noqa: S104
            created_at=reading.moment(machine.get("date_created")),
        )

    async def close(self) -> None:
        """Gives its thread back."""
        await self._link.close()

    async def _send(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Any:
        told = await self._link.run(
            call,
            lambda: self._driver.connection.request(
                path,
                params=params,
                data=None if body is None else json.dumps(body),
                method=call.name.partition(" ")[0],
                retry_failed=False,
            ),
            hide=(self._token.reveal(),),
        )
        return told.body

    async def _every(self, call: contract.ApiCall, path: str, key: str) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        cursor: dict[str, Any] = {}
        for _ in range(adapter.MOST_PAGES):
            body = reading.body(call, await self._send(call, path, per_page=_PAGE, **cursor))
            rows = body.get(key)
            if not isinstance(rows, list):
                raise answers.unanswered(call.name, f"a success without {key}")
            for row in rows:
                found.setdefault(str(row["id"]), row)
            following = ((body.get("meta") or {}).get("links") or {}).get("next")
            if not following:
                return list(found.values())
            cursor = {"cursor": str(following)}
        raise answers.unanswered(call.name, f"more than {adapter.MOST_PAGES} pages")


def _power(machine: Mapping[str, Any]) -> contract.Power:
    if machine.get("status") in {"pending", "resizing"}:
        return contract.Power.STARTING
    if machine.get("server_status") in {"installingbooting", "isomounting"}:
        return contract.Power.STARTING
    if machine.get("status") != "active":
        return contract.Power.UNKNOWN
    running = machine.get("power_status") == "running"
    return contract.Power.RUNNING if running else contract.Power.OFF


def _number(image: str) -> int | str:
    return int(image) if image.isdecimal() else image


def _size(row: Mapping[str, Any]) -> contract.Size:
    monthly = Decimal(str(row["monthly_cost"])) * 1_000_000
    price = contract.Price(
        hourly_micros=round(monthly / _HOURS_A_MONTH),
        currency="USD",
        monthly_cap_micros=round(monthly),
    )
    return contract.Size(
        name=str(row["id"]),
        cores=int(row["vcpu_count"]),
        memory_bytes=int(row["ram"]) * 2**20,
        disk_bytes=int(row["disk"]) * 10**9,
        architecture="x86_64",
        regions=tuple(str(region) for region in row["locations"]),
        prices={"": price},
    )
