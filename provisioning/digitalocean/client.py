"""DigitalOcean through apache-libcloud: what its driver can carry, and its connection for the rest.

Machines are created, deleted and restarted by libcloud's own methods (first-boot data only through
`ex_user_data`: inside `ex_create_attr` it is dropped without a word). Its reading of a droplet is
passed over, since a field that it misses would lose the id of a machine that exists.

Known limit: libcloud's reply to a create has no place for the create action; it is taken from the
answer itself.
"""

import json
import types
from collections.abc import Mapping
from typing import Any, Final, Self

from libcloud.compute.drivers import digitalocean as libcloud_driver

from provisioning import answers, contract, libcloud_link, providers, shaped
from provisioning.digitalocean import calls, errors
from runtime_kit import clock as clock_kit
from runtime_kit import secret as secret_kit

ADDRESS: Final = "https://api.digitalocean.com"
PAGE: Final = 200
"""The most that DigitalOcean gives at once; its default of 20 has hidden machines from others."""
MOST_PAGES: Final = 500


class _Driver(libcloud_driver.DigitalOcean_v2_NodeDriver):  # type: ignore[misc]
    """Sends what libcloud would leave out, and gives droplets as they came."""

    EX_CREATE_ATTRIBUTES = (
        "ipv6",
        "monitoring",
        "public_networking",
        "ssh_keys",
        "tags",
        "volumes",
        "vpc_uuid",
        "with_droplet_agent",
    )

    def __new__(cls, *_: object, **__: object) -> Self:
        """Passes over libcloud's choice of a version, which trips over a class made of its own."""
        return object.__new__(cls)

    def _to_node(self, data: Any) -> Any:
        return data


class Client:
    """One token's way to the API."""

    def __init__(
        self,
        token: secret_kit.Secret,
        *,
        observer: contract.Observer,
        clock: clock_kit.Clock,
        limits: providers.TimeLimits,
        address: str = ADDRESS,
    ) -> None:
        self._token = token
        self._link = libcloud_link.Link(
            observer=observer,
            clock=clock,
            read=errors.read,
            judge=errors.judge,
            limits=limits,
        )
        connection = self._link.guarded(
            _Driver.connectionCls, add_default_params=lambda _self, params: params
        )
        driver_class: Any = type("Driver", (_Driver,), {"connectionCls": connection})
        self._driver: Any = driver_class(token.reveal())
        libcloud_link.aim(self._driver.connection, address)

    @property
    def budget(self) -> answers.Budget | None:
        """What was left of the hour's calls at the last answer."""
        return self._link.budget

    async def create(self, order: Mapping[str, Any], *, first_boot: str) -> Any:
        """Orders a droplet; gives the whole answer, links with it."""
        extra = {key: order[key] for key in _Driver.EX_CREATE_ATTRIBUTES if key in order}
        told = await self._link.run(
            calls.CREATE,
            lambda: self._driver.create_node(
                name=order["name"],
                size=types.SimpleNamespace(name=order["size"]),
                image=types.SimpleNamespace(id=order["image"]),
                location=types.SimpleNamespace(id=order["region"]),
                ex_create_attr=extra,
                ex_user_data=first_boot,
            ),
            hide=self._hidden(first_boot),
        )
        return told.body

    async def delete_droplet(self, ref: str) -> None:
        """Has it deleted."""
        node = types.SimpleNamespace(id=ref)
        await self._link.run(
            calls.DELETE, lambda: self._driver.destroy_node(node), hide=self._hidden()
        )

    async def reboot(self, ref: str) -> None:
        """Restarts it, without losing what it has on disk."""
        node = types.SimpleNamespace(id=ref)
        await self._link.run(
            calls.REBOOT, lambda: self._driver.reboot_node(node), hide=self._hidden()
        )

    async def send(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Makes one call of the table over libcloud's connection; gives the answer's JSON."""
        told = await self._link.run(
            call,
            lambda: self._driver.connection.request(
                path,
                params=dict(params or {}),
                data=None if body is None else json.dumps(body),
                method=call.name.partition(" ")[0],
                retry_failed=False,
            ),
            hide=self._hidden(),
        )
        return told.body

    async def every(
        self, call: contract.ApiCall, path: str, key: str, **params: str
    ) -> list[dict[str, Any]]:
        """All pages of a list, each thing once; an incomplete list is a fault, never a list."""
        found: dict[str, dict[str, Any]] = {}
        for page in range(1, MOST_PAGES + 1):
            body = await self.send(call, path, params={**params, "per_page": PAGE, "page": page})
            rows = body.get(key) if isinstance(body, dict) else None
            if not isinstance(rows, list):
                raise answers.unanswered(call.name, f"a success without {key}")
            with shaped.reading(call.name):
                for row in rows:
                    found.setdefault(str(row.get("id") or row.get("slug") or row["ip"]), row)
                pages = (body.get("links") or {}).get("pages") or {}
                is_last = not pages.get("next")
            if is_last:
                return list(found.values())
        raise answers.unanswered(call.name, f"more than {MOST_PAGES} pages")

    async def close(self) -> None:
        """Gives its thread back."""
        await self._link.close()

    def _hidden(self, *more: str) -> tuple[str, ...]:
        return (self._token.reveal(), *more)
