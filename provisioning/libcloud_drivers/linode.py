"""Akamai (Linode), API v4, through libcloud: `ex_userdata` and `ex_tags`.

libcloud encodes the first-boot data itself, whatever its docstring says, so it is given plain. A
tag holds at most 50 characters, so the owner's line is cut into numbered pieces. An image needs a
root password: one is made up for each call and kept nowhere.

Known limit: a label is unique in the account, which helps within one attempt and no further.
"""

import json
import re
import secrets
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from libcloud.compute import base as libcloud_base
from libcloud.compute.drivers import linode as libcloud_driver

from provisioning import answers, contract, credentials, libcloud_link, packed_owner, providers
from provisioning.libcloud_drivers import adapter, errors, reading

ADDRESS: Final = "https://api.linode.com"
RAISE_LIMIT: Final = "https://cloud.linode.com/support/tickets"
_PAGE: Final = 100
_PIECE: Final = 40
_TAG: Final = re.compile(r"enlist(\d)-(.+)")

_FEATURE = contract.Feature
_Call = contract.ApiCall
ACCOUNT: Final = _Call(name="GET /v4/profile", feature=_FEATURE.CHECK, right="account:read_only")
TYPES: Final = _Call(name="GET /v4/linode/types", feature=_FEATURE.CATALOG)
REGIONS: Final = _Call(name="GET /v4/regions", feature=_FEATURE.CATALOG)
IMAGES: Final = _Call(name="GET /v4/images", feature=_FEATURE.CATALOG, right="images:read_only")
LIST: Final = _Call(
    name="GET /v4/linode/instances", feature=_FEATURE.MACHINES, right="linodes:read_only"
)
GET: Final = _Call(
    name="GET /v4/linode/instances/{id}", feature=_FEATURE.MACHINES, right="linodes:read_only"
)
CREATE: Final = _Call(
    name="POST /v4/linode/instances",
    feature=_FEATURE.MACHINES,
    right="linodes:read_write",
    changes=True,
    costs=True,
)
DELETE: Final = _Call(
    name="DELETE /v4/linode/instances/{id}",
    feature=_FEATURE.MACHINES,
    right="linodes:read_write",
    changes=True,
)
REBOOT: Final = _Call(
    name="POST /v4/linode/instances/{id}/reboot",
    feature=_FEATURE.MACHINES,
    right="linodes:read_write",
    changes=True,
)

_POWER: Final = {
    "running": contract.Power.RUNNING,
    "rebooting": contract.Power.RUNNING,
    "provisioning": contract.Power.STARTING,
    "booting": contract.Power.STARTING,
    "rebuilding": contract.Power.STARTING,
    "cloning": contract.Power.STARTING,
    "restoring": contract.Power.STARTING,
    "shutting_down": contract.Power.STOPPING,
    "offline": contract.Power.OFF,
    "stopped": contract.Power.OFF,
    "deleting": contract.Power.DELETING,
}


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this token; nothing is called yet."""
    if not isinstance(opening.credential, credentials.Token):
        raise providers.Refused("Linode is opened with a personal access token.")
    return adapter.Driver(Linode(opening, opening.credential))


class _Driver(libcloud_driver.LinodeNodeDriverV4):  # type: ignore[misc]
    def _to_node(self, data: Any) -> Any:
        return data


class Linode:
    """Linode as the adapter sees it."""

    provider = "linode"
    capabilities = frozenset(
        {
            contract.Capability.CUSTOM_IMAGE,
            contract.Capability.PRICE,
            contract.Capability.REBOOT,
            contract.Capability.SSH_KEY,
        }
    )
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
        """The profile behind the token."""
        profile = await self._read(ACCOUNT, "/v4/profile")
        await self._read(LIST, "/v4/linode/instances", page=1)
        return contract.Validation(
            account=str(profile["email"]),
            principal=str(profile["username"]),
            unproved=("linodes:read_write",),
        )

    async def offer(self) -> contract.Offer:
        """Types with their prices, regions, public images."""
        regions = tuple(sorted(str(one["id"]) for one in await self._every(REGIONS, "/v4/regions")))
        sizes = tuple(_size(one, regions) for one in await self._every(TYPES, "/v4/linode/types"))
        images = await self._every(IMAGES, "/v4/images")
        return contract.Offer(
            regions=regions, sizes=sizes, images=tuple(sorted(str(one["id"]) for one in images))
        )

    async def settle(self, request: contract.Request) -> contract.Plan:
        """Whether type, region and image are there."""
        offer = await self.offer()
        size = next((one for one in offer.sizes if one.name == request.size), None)
        known = (
            (size is not None, f"Linode has no type {request.size}."),
            (request.region in offer.regions, f"Linode has no region {request.region}."),
            (request.image in offer.images, f"Linode has no image {request.image}."),
        )
        return contract.Plan(
            refusals=tuple(sentence for is_there, sentence in known if not is_there),
            price=None if size is None else size.prices[""],
        )

    async def order(self, request: contract.Request) -> dict[str, Any]:
        """One POST, made by libcloud."""
        password = secrets.token_urlsafe(48)
        keys = None if request.ssh is None else [request.ssh.public_key]
        told = await self._link.run(
            CREATE,
            lambda: self._driver.create_node(
                name=request.name,
                size=libcloud_base.NodeSize(request.size, "", 0, 0, 0, 0, self._driver),
                image=libcloud_base.NodeImage(request.image, "", self._driver),
                location=libcloud_base.NodeLocation(request.region, "", "", self._driver),
                root_pass=password,
                ex_authorized_keys=keys,
                ex_tags=tags_of(request.owner),
                ex_userdata=request.first_boot,
            ),
            hide=(self._token.reveal(), password, *reading.as_sent(request.first_boot)),
        )
        return reading.body(CREATE, told.body)

    async def machines(self) -> list[dict[str, Any]]:
        """All instances, all pages."""
        return await self._every(LIST, "/v4/linode/instances")

    async def machine(self, ref: str) -> dict[str, Any]:
        """This instance."""
        return await self._read(GET, f"/v4/linode/instances/{ref}")

    async def remove(self, ref: str) -> None:
        """Has it deleted, with its disks."""
        await self._send(DELETE, f"/v4/linode/instances/{ref}")

    async def restart(self, ref: str) -> None:
        """Restarts it."""
        await self._send(REBOOT, f"/v4/linode/instances/{ref}/reboot", body={})

    def read(self, machine: dict[str, Any]) -> contract.Instance:
        """An instance's JSON as our value."""
        ref, state = str(machine["id"]), str(machine.get("status", ""))
        v6 = str(machine.get("ipv6") or "").partition("/")[0]
        return contract.Instance(
            ref=ref,
            name=str(machine.get("label", "")),
            region=str(machine.get("region", "")),
            power=_POWER.get(state, contract.Power.UNKNOWN),
            raw_state=state,
            instance_id=ref,
            owner=owner_of(machine.get("tags") or []),
            size=str(machine.get("type", "")),
            image=str(machine.get("image") or ""),
            addresses=tuple(
                str(one) for one in [*(machine.get("ipv4") or []), *([v6] if v6 else [])]
            ),
            created_at=reading.moment(machine.get("created")),
        )

    async def close(self) -> None:
        """Gives its thread back."""
        await self._link.close()

    async def _read(self, call: contract.ApiCall, path: str, **params: Any) -> dict[str, Any]:
        return reading.body(call, await self._send(call, path, **params))

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

    async def _every(self, call: contract.ApiCall, path: str) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for page in range(1, adapter.MOST_PAGES + 1):
            body = await self._read(call, path, page=page, page_size=_PAGE)
            rows = body.get("data")
            if not isinstance(rows, list):
                raise answers.unanswered(call.name, "a success without data")
            for row in rows:
                found.setdefault(str(row["id"]), row)
            if page >= int(body.get("pages", 1)):
                return list(found.values())
        raise answers.unanswered(call.name, f"more than {adapter.MOST_PAGES} pages")


def tags_of(owner: contract.Owner) -> list[str]:
    """The owner's line in numbered pieces."""
    line = packed_owner.as_line(owner)
    pieces = [line[begin : begin + _PIECE] for begin in range(0, len(line), _PIECE)]
    return [f"enlist{number}-{piece}" for number, piece in enumerate(pieces)]


def owner_of(tags: list[Any]) -> contract.Owner | None:
    """Whose it is; None where a piece is missing."""
    pieces = sorted(match.groups() for tag in tags if (match := _TAG.fullmatch(str(tag))))
    return packed_owner.owner_of_line("".join(piece for _, piece in pieces))


def _size(row: Mapping[str, Any], regions: tuple[str, ...]) -> contract.Size:
    price = contract.Price(
        hourly_micros=round(Decimal(str(row["price"]["hourly"])) * 1_000_000),
        currency="USD",
        monthly_cap_micros=round(Decimal(str(row["price"]["monthly"])) * 1_000_000),
    )
    return contract.Size(
        name=str(row["id"]),
        cores=int(row["vcpus"]),
        memory_bytes=int(row["memory"]) * 2**20,
        disk_bytes=int(row["disk"]) * 2**20,
        architecture="x86_64",
        regions=regions,
        prices={"": price},
    )
