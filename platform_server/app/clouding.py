"""Builds the parts that order machines: drivers' opener, kinds of operations, views, the routes.

No cloud SDK is imported here; each provider's is when the first connection to it is opened. With
dispatch off nothing could enlist itself: the routes say so, and nothing runs.
"""

import asyncio
import dataclasses
import datetime
import functools
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from platform_server.app import data_dir, local_machines, orders
from platform_server.cloud import (
    catalogue,
    checking,
    connecting,
    connections,
    consent,
    create,
    delete,
    means,
    opening,
    orphan_kind,
    policy,
    reboot,
    resource_kinds,
    sweeper,
    tickets,
    upkeep,
    using,
    view,
    ways_in,
)
from platform_server.cloud.issuer import rotation
from platform_server.endpoints import (
    cloud_connections,
    cloud_machines,
    cloud_means,
    cloud_ordering,
    cloud_orphans,
    cloud_overview,
    cloud_resources,
    invitations,
    operation_decisions,
    routes,
)
from platform_server.nodes import configured, registry
from platform_server.operations import kinds, shelf
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.trust import authority
from provisioning import first_boot
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from wire_protocol import ids
from wire_protocol import tickets as wire_tickets

_LOG = logging.getLogger(__name__)
_LONGEST_WAIT: Final = datetime.timedelta(hours=6)
_RETRY_SECONDS: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clouding:
    """What the engine serves and runs for machines from providers."""

    known: Sequence[kinds.Kind]
    tasks: Mapping[str, supervise.Work]
    served: Callable[[Callable[[], None]], Sequence[routes.Route]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the other parts of the engine give to these. `invite` is None where no nodes enroll."""

    given: orders.Orders
    settings: groups.Settings
    store: contract.Store
    keyring: envelope.Keyring
    trust: authority.Authority | None
    operators: configured.ConfiguredNodes
    invite: Callable[[], invitations.Invitation] | None
    clock: clock_kit.Clock


def build(parts: Given) -> Clouding:
    """Builds them; nothing is asked of anybody yet."""
    settings, store, clock = parts.settings, parts.store, parts.clock
    clouds = using.StoredClouds(
        store,
        keyring=parts.keyring,
        opener=opening.ProviderOpener(
            store,
            keyring=parts.keyring,
            clock=clock,
            cloud=settings.cloud,
            shared={**local_machines.shared(settings), **_tagged_as(parts.trust)},
        ),
        clock=clock,
        environment=settings.platform.environment,
    )
    trust, invite = parts.trust, parts.invite
    if trust is None or invite is None:
        viewer = view.Viewer(store, clouds=clouds, installation="", clock=clock)
        return Clouding(
            known=(),
            tasks={},
            served=functools.partial(_served, parts, clouds=clouds, viewer=viewer),
        )
    installation = trust.published.statement.platform_id
    viewer = view.Viewer(
        store,
        clouds=clouds,
        installation=installation,
        clock=clock,
        refresh_seconds=settings.cloud.refresh_seconds,
    )
    stands_on = means.Means(
        store=store,
        clouds=clouds,
        viewer=viewer,
        keyring=parts.keyring,
        minting=_minting(parts, trust=trust, invite=invite),
        installation=installation,
        environment=settings.platform.environment,
        limits=_limits(settings.cloud),
        clock=clock,
        node_changed=functools.partial(_node_changed, store),
        caps_of=functools.partial(_caps_of, parts),
        instead_of=catalogue.Catalogue(
            store, clouds=clouds, policies=_policies(parts), clock=clock
        ).instead_of,
    )
    return Clouding(
        known=_kinds(stands_on),
        tasks=_tasks(parts, stands_on=stands_on),
        served=functools.partial(_served, parts, clouds=clouds, viewer=viewer),
    )


def _tagged_as(trust: authority.Authority | None) -> dict[str, dict[str, str]]:
    """To AWS our sessions are narrowed to what carries this installation's id."""
    if trust is None:
        return {}
    return {"aws": {"installation": trust.published.statement.platform_id}}


def _tasks(parts: Given, *, stands_on: means.Means) -> Mapping[str, supervise.Work]:
    group = parts.settings.cloud
    sweeping = sweeper.Sweeper(
        parts.store,
        clouds=stands_on.clouds,
        installation=stands_on.installation,
        environment=stands_on.environment,
        rules=sweeper.Rules(
            orphans=group.orphans,
            grace=datetime.timedelta(seconds=group.orphan_grace_seconds),
            every_seconds=group.sweep_seconds,
        ),
        clock=parts.clock,
    )
    tasks: dict[str, supervise.Work] = {
        "cloud-view": stands_on.viewer.run,
        "cloud-sweeper": sweeping.run,
        "cloud-ways-in": ways_in.WaysIn(
            parts.store,
            clouds=stands_on.clouds,
            environment=stands_on.environment,
            clock=parts.clock,
        ).run,
    }
    if group.auto_destroy_failed_after is not None:
        tasks["cloud-upkeep"] = upkeep.Upkeep(
            parts.store,
            destroy_after=datetime.timedelta(seconds=group.auto_destroy_failed_after),
            environment=stands_on.environment,
            clock=parts.clock,
        ).run
    if parts.settings.cloud.issuer_url is not None:
        tasks["cloud-issuer"] = functools.partial(_keep_issuer, parts)
    return tasks


def _served(
    parts: Given,
    changed: Callable[[], None],
    *,
    clouds: using.StoredClouds,
    viewer: view.Viewer,
) -> tuple[routes.Route, ...]:
    settings, store, clock = parts.settings, parts.store, parts.clock
    policies = _policies(parts)
    installation = "" if parts.trust is None else parts.trust.published.statement.platform_id
    shared = cloud_means.CloudMeans(
        clouds=clouds,
        connecting=connecting.Connecting(
            checking.Means(
                store=store,
                clouds=clouds,
                clock=clock,
                issuer_url=settings.cloud.issuer_url,
                installation=installation,
            ),
            keyring=parts.keyring,
            cloud=settings.cloud,
            environment=settings.platform.environment,
            changed=changed,
        ),
        policies=policies,
        operators=parts.operators,
        enrollment_url=functools.partial(_enrollment_url, parts.invite),
        installable=functools.partial(_installable, parts.invite),
        builds=parts.given.bundle_url is not None,
        installation=installation,
        changed=changed,
    )
    ordering = cloud_ordering.Ordering(
        shared,
        offered=catalogue.Catalogue(store, clouds=clouds, policies=policies, clock=clock),
    )
    return (
        *cloud_overview.CloudOverview(shared, keyring=parts.keyring).served(),
        *cloud_connections.CloudConnections(shared, viewer=viewer).served(),
        *ordering.served(),
        *cloud_resources.CloudResources(shared).served(),
        *cloud_orphans.CloudOrphans(shared).served(),
        *cloud_machines.CloudMachines(shared, ordering=ordering, viewer=viewer).served(),
        *operation_decisions.OperationDecisions(shared).served(),
    )


def _minting(
    parts: Given,
    *,
    trust: authority.Authority,
    invite: Callable[[], invitations.Invitation],
) -> tickets.Minting:
    archives = shelf.Shelf(parts.given.data_dir / data_dir.BUNDLES, origin=parts.given.bundle_url)
    return tickets.Minting(
        platform_id=trust.published.statement.platform_id,
        sign=functools.partial(trust.sign, context=wire_tickets.CONTEXT),
        coordinates=functools.partial(
            _coordinates,
            invite=invite,
            archives=archives,
            bridge=local_machines.address(parts.settings),
        ),
        render=_render,
        operators=parts.operators,
    )


def _coordinates(
    provider: str,
    *,
    invite: Callable[[], invitations.Invitation],
    archives: shelf.Shelf,
    bridge: str | None,
) -> tickets.Coordinates | None:
    invitation = invite()
    if invitation.platform_url is None:
        return None
    at = functools.partial(local_machines.seen_from, provider, bridge=bridge)
    served = invitation.bundles
    bundle = None
    if served is not None:
        newest: dict[str, str] = {}
        scripts: dict[str, str] = {}
        for one in archives.list_workers():
            script = archives.installer_hash(one.sha256)
            if script is not None and one.architecture not in newest:
                newest[one.architecture], scripts[one.architecture] = one.sha256, script
        bundle = wire_tickets.Bundle(
            url=at(served.url), pins=tuple(served.pins), archives=newest, installers=scripts
        )
    return tickets.Coordinates(
        url=at(invitation.platform_url),
        pins=tuple(invitation.pins),
        trust_key_ids=tuple(invitation.trust_key_ids),
        bundle=bundle,
    )


def _enrollment_url(invite: Callable[[], invitations.Invitation] | None) -> str | None:
    return None if invite is None else invite().platform_url


def _installable(invite: Callable[[], invitations.Invitation] | None) -> bool:
    return invite is not None and invite().bundles is not None


def _render(ticket: Mapping[str, str]) -> str:
    return first_boot.render(first_boot.Ticket(**ticket))


def _limits(group: groups.CloudGroup) -> means.Limits:
    return means.Limits(
        launch=datetime.timedelta(seconds=group.launch_seconds),
        enrollment=datetime.timedelta(seconds=group.enrollment_seconds),
        attempts=group.attempts,
        breaker_failures=group.breaker_failures,
    )


def _policies(parts: Given) -> policy.Source:
    path = parts.settings.cloud.policy_file
    return policy.Source(None if path is None else pathlib.Path(path))


async def _caps_of(parts: Given, connection_id: str) -> Sequence[consent.Caps]:
    """What machines of this connection are judged by now; raises `policy.Unavailable`."""
    found = await parts.store.read(lambda tx: connections.get(tx, connection_id=connection_id))
    rules = await asyncio.to_thread(_policies(parts).find, found.provider)
    return consent.caps_of(found, rules=rules, now=parts.clock.now())


def _node_changed(store: contract.Store, node_id: ids.NodeId) -> None:
    store.signal(registry.CHANGED, node_id)


async def ensure_local(parts: Given) -> None:
    """This very host can be ordered from without saving anything first."""

    async def work(tx: contract.Tx) -> None:
        await connecting.ensure_local(
            tx,
            infra=parts.settings.platform.infra,
            actor=connections.ACTOR,
            now=parts.clock.now(),
        )

    await parts.store.transact(work)


async def _keep_issuer(parts: Given) -> None:
    """Makes, shows and drops the issuer's keys when their time has come, for ever."""
    while True:
        seconds = _RETRY_SECONDS
        try:
            plan = await rotation.advance(
                parts.store,
                keyring=parts.keyring,
                environment=parts.settings.platform.environment,
                clock=parts.clock,
            )
            left = plan.look_again_at - parts.clock.now()
            seconds = max(1.0, min(left, _LONGEST_WAIT).total_seconds())
        except contract.StoreError as fault:
            _LOG.warning("The issuer's keys cannot be looked at", extra={"reason": str(fault)})
        await parts.clock.sleep(seconds)


def _kinds(stands_on: means.Means) -> Sequence[kinds.Kind]:
    beside = resource_kinds.Means(
        store=stands_on.store,
        clouds=stands_on.clouds,
        installation=stands_on.installation,
        environment=stands_on.environment,
        clock=stands_on.clock,
    )
    return (
        create.CreateMachine(stands_on),
        delete.DeleteMachine(stands_on),
        reboot.RebootMachine(stands_on),
        *resource_kinds.all_of(beside),
        orphan_kind.DeleteOrphan(beside),
    )
