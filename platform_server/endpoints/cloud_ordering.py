"""Judges an order before it is stored, and shows what can be ordered: `/cloud/catalog`.

The provider is asked only where its last offer is older than an hour, and never inside a
transaction. What was never tried takes the right to save connections as well, since the operator
answers for it.
"""

import datetime
import ipaddress
import shlex
from collections.abc import Sequence
from typing import Annotated, Final

import pydantic

from platform_server.cloud import catalogue, connecting, merging, requests
from platform_server.endpoints import calls, cloud_means, cloud_shown, refusals, routes
from platform_server.store import contract
from provisioning import abilities, first_boot, providers
from provisioning import contract as provider_contract
from wire_protocol import cloud, cloud_machines, ids

_LOCAL: Final = providers.ALIASES["local"]
_UNTESTED: Final = "cloud.connect"
_CAN: Final = provider_contract.Capability


class CatalogQuery(pydantic.BaseModel):
    """What the catalogue is narrowed to."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    provider: Annotated[
        cloud.Provider | None, pydantic.Field(description="Only of this provider.")
    ] = None
    connection: Annotated[
        str | None,
        pydantic.Field(pattern=cloud.CONNECTION_PATTERN, description="Only through this one."),
    ] = None
    region: Annotated[
        str | None,
        pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="Only there."),
    ] = None
    role: Annotated[
        cloud_machines.Role, pydantic.Field(description="What for; build advises a larger tier.")
    ] = "general"
    nested_virt: Annotated[
        bool, pydantic.Field(description="Only what can run virtual machines itself.")
    ] = False
    untested: Annotated[bool, pydantic.Field(description="Also what nobody has tried.")] = False


class Ordering:
    """The judge of orders, and the list of what can be ordered."""

    def __init__(self, means: cloud_means.CloudMeans, *, offered: catalogue.Catalogue) -> None:
        self._means = means
        self._offered = offered

    async def judge(
        self, call: calls.Call[cloud_machines.OrderMachine, routes.NoQuery]
    ) -> requests.Order:
        """The order, exact; raises what `cloud_means.REFUSED` holds, and `Refusal`."""
        body = call.body
        if body.untested:
            call.require(_UNTESTED)
        _require_able(body)
        ssh = _ssh(body.ssh, now=call.now())
        infra = call.settings.platform.infra
        await self._ensure_local(call)
        judged = await self._offered.judge(
            catalogue.Wish(
                provider=body.provider,
                connection=body.connection,
                region=body.region,
                tier=body.tier,
                size=body.size,
                image=body.image,
                role=body.role,
                untested=body.untested,
                nested_virt=body.nested_virt,
            ),
            infra=infra,
            actor=call.principal.name,
        )
        return requests.Order(
            node_id=ids.NodeId(body.node_id),
            infra=infra,
            connection=judged.connection,
            region=judged.region,
            zone=judged.zone,
            size=judged.size,
            image=judged.image,
            role=body.role,
            network=body.network,
            subnet=body.subnet,
            disk_gigabytes=body.disk_gigabytes,
            public_ipv4=body.public_ipv4,
            public_ipv6=body.public_ipv6,
            labels=body.labels,
            first_boot=_snippet(body.first_boot),
            ssh=ssh,
            purpose=body.purpose,
            price=judged.price,
            caps=judged.caps,
            warnings=judged.warnings,
        )

    async def list_all(self, call: calls.Call[None, CatalogQuery]) -> cloud.Catalog:
        """What can be ordered now."""
        self._means.require()
        query = call.query
        wanted = catalogue.Wanted(
            provider=query.provider,
            connection=query.connection,
            region=query.region,
            role=query.role,
            nested_virt=query.nested_virt,
            untested=query.untested,
        )
        found = await cloud_means.refusing(self._offered.list(wanted, actor=call.principal.name))
        return cloud.Catalog(
            offered=[_offered(one) for one in found.rows],
            images={name: list(images) for name, images in found.images.items()},
            missing=list(found.missing),
        )

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        return (
            routes.Route(
                method="GET",
                path="/api/v1/cloud/catalog",
                summary="What may be ordered now, where, and for how much.",
                handler=self.list_all,
                query=CatalogQuery,
                answer=cloud.Catalog,
                problems=(*cloud_means.PROBLEMS, "not-found"),
            ),
        )

    # Inside.

    async def _ensure_local(
        self, call: calls.Call[cloud_machines.OrderMachine, routes.NoQuery]
    ) -> None:
        """This very host needs no connection to be saved; a rehearsal makes none."""
        body = call.body
        is_local = providers.get(body.provider).name == _LOCAL
        if call.check or body.connection is not None or not is_local:
            return

        async def work(tx: contract.Tx) -> None:
            await connecting.ensure_local(
                tx,
                actor=call.principal.name,
                now=call.now(),
                infra=call.settings.platform.infra,
            )

        await call.store.transact(work)


def _require_able(body: cloud_machines.OrderMachine) -> None:
    """Raises `abilities.Lacking` for what this provider does not have."""
    name = providers.get(body.provider).name
    for wished, capability in (
        (body.ssh is not None, _CAN.SSH_KEY),
        (body.network is not None or body.subnet is not None, _CAN.NETWORKS),
        (body.nested_virt, _CAN.NESTED_VIRT),
    ):
        if wished:
            abilities.require(name, capability)


def _ssh(
    wished: cloud_machines.Ssh | None, *, now: datetime.datetime
) -> provider_contract.Ssh | None:
    if wished is None:
        return None
    return provider_contract.Ssh(
        public_key=wished.public_key,
        sources=tuple(_networks(wished.sources)),
        until=now + datetime.timedelta(seconds=wished.seconds) if wished.sources else None,
    )


def _snippet(text: str | None) -> str | None:
    if text is not None:
        try:
            first_boot.parse_snippet(text)
        except ValueError as fault:
            raise refusals.invalid("first_boot", f"first_boot: {fault}") from None
    return text


def _networks(texts: Sequence[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        try:
            found.append(str(ipaddress.ip_network(text.strip())))
        except ValueError:
            raise refusals.invalid(
                "ssh.sources",
                f"ssh.sources: {shlex.quote(text[:64])} is not a network such as 192.0.2.7/32 or "
                "2001:db8::/48 (no bits may be set behind the prefix).",
            ) from None
    return found


def _offered(found: catalogue.Listed) -> cloud.Offered:
    one: merging.Offered = found.offered
    size = one.size
    return cloud.Offered(
        provider=found.provider,
        connection=found.connection,
        region=one.region,
        tier=one.tier,
        size=size.name,
        architecture=size.architecture,
        cores=size.cores,
        memory_bytes=size.memory_bytes,
        disk_bytes=size.disk_bytes,
        nested_virt=size.nested_virt,
        price=cloud_shown.price(one.price),
        tested=one.is_tested,
        available=one.is_available,
        reason=one.reason,
        withdrawn_after=size.withdrawn_after,
        advice=one.advice,
    )
