"""`/cloud`, `/cloud/costs`, `/cloud/issuer`: what can be used, what it costs, what to publish."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Annotated, Any, Final

import pydantic

from platform_server.cloud import connections, consent, costs, policy
from platform_server.cloud.issuer import documents, keys, rotation
from platform_server.endpoints import calls, cloud_means, refusals, routes
from platform_server.sealing import envelope
from platform_server.store import contract
from provisioning import abilities, providers
from wire_protocol import admin, cloud, times

_MOST_CONNECTIONS: Final = 500
_MOST_SUBJECTS: Final = 500
_LIVE: Final = "gone_at IS NULL AND forgotten_at IS NULL"


class ScopeQuery(pydantic.BaseModel):
    """Narrows to one scope."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    infra: Annotated[
        str | None,
        pydantic.Field(
            pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="Only this scope."
        ),
    ] = None


class CloudOverview:
    """The handlers."""

    def __init__(self, means: cloud_means.CloudMeans, *, keyring: envelope.Keyring) -> None:
        self._means = means
        self._keyring = keyring

    async def show(self, call: calls.Call[None, routes.NoQuery]) -> cloud.Cloud:
        """Which providers can be used, and what is missing for the rest."""
        self._means.require()
        group = call.settings.cloud
        taken = providers.Policy(group.credential_policy)
        facts = []
        for row in providers.PROVIDERS.values():
            missing = await self._means.missing_of(row.name)
            facts.append(
                cloud.ProviderFacts(
                    provider=row.name,
                    title=row.title,
                    costs_money=row.costs_money,
                    credential_kinds=[kind.value for kind in row.kinds_under(taken)],
                    available=not missing,
                    missing=list(missing),
                    capabilities=sorted(abilities.ALL[row.name]),
                )
            )
        return cloud.Cloud(
            available=True,
            missing=[],
            credential_policy=group.credential_policy,
            policy_file=group.policy_file,
            issuer_url=group.issuer_url,
            providers=facts,
        )

    async def show_costs(self, call: calls.Call[None, ScopeQuery]) -> cloud.Costs:
        """Running totals, by connection and by what costs."""
        self._means.require()
        now, infra = call.now(), call.query.infra
        rules = await self._all_rules()

        async def work(tx: contract.Tx) -> cloud.Costs:
            found = await connections.list_page(tx, limit=_MOST_CONNECTIONS, infra=infra)
            totals = await costs.total_by_connection(tx, now=now, infra=infra)
            subjects = await costs.list_subjects(tx, now=now, limit=_MOST_SUBJECTS, infra=infra)
            names = {one.connection_id: one.name for one in found}
            nodes = await _nodes(tx, subjects)
            return cloud.Costs(
                connections=[
                    one
                    for each in found
                    for one in await self._connection(
                        tx,
                        each,
                        totals=totals.get(each.connection_id, ()),
                        caps=consent.caps_of(each, rules=rules.get(each.provider), now=now),
                    )
                ],
                subjects=[_subject(one, names=names, nodes=nodes) for one in subjects],
                at=now,
            )

        return await call.read(work)

    async def show_issuer(self, call: calls.Call[None, routes.NoQuery]) -> cloud.Issuer:
        """The static files of our own issuer."""
        self._means.require()
        url, now = call.settings.cloud.issuer_url, call.now()
        if url is None:
            return cloud.Issuer(url=None, files=[], signs_until=None)
        shown = await call.read(functools.partial(keys.list_shown, now=now))
        try:
            files = documents.of(url, shown=shown)
        except documents.Refused as fault:
            raise refusals.Refusal("conflict", f"[cloud] issuer_url: {fault}") from None
        return cloud.Issuer(
            url=url,
            files=[
                cloud.IssuerFile(path=path, document=content.decode())
                for path, content in files.items()
            ],
            signs_until=max((key.signs_until for key in shown), default=None),
        )

    async def rotate_issuer(
        self, call: calls.Call[cloud.RotateIssuer, routes.NoQuery]
    ) -> calls.Reply:
        """Shows a further key, at the operator's word."""
        self._means.require()
        if call.settings.cloud.issuer_url is None:
            raise refusals.Refusal(
                "conflict", "This Platform's issuer has no address: set [cloud] issuer_url."
            )
        now, at_once = call.now(), call.body.at_once
        private = await asyncio.to_thread(keys.make_private)

        async def work(tx: contract.Tx) -> calls.Changed:
            key = await rotation.rotate_now(
                tx,
                private=private,
                keyring=self._keyring,
                signs_after=rotation.AT_ONCE if at_once else rotation.SHOWN_BEFORE,
                now=now,
            )
            await call.record(
                tx,
                action="cloud.issuer.rotate",
                target=key.key_id,
                details={"at_once": at_once, "signs_from": times.to_rfc3339(key.signs_from)},
            )
            changes = [
                admin.Change(
                    action="rotate",
                    target=key.key_id,
                    detail=f"signs from {times.to_rfc3339(key.signs_from)}; until then: enlist "
                    "cloud issuer export DIR, and publish it",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        try:
            return await call.mutate(work)
        except rotation.TooManyKeys as fault:
            raise refusals.Refusal("conflict", str(fault)) from None

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        return (
            routes.Route(
                method="GET",
                path="/api/v1/cloud",
                summary="Which providers can be used, and what is missing for the rest.",
                handler=self.show,
                answer=cloud.Cloud,
                problems=cloud_means.PROBLEMS,
            ),
            routes.Route(
                method="GET",
                path="/api/v1/cloud/costs",
                summary="What each connection and machine costs by the hour, and has cost.",
                handler=self.show_costs,
                query=ScopeQuery,
                answer=cloud.Costs,
                problems=cloud_means.PROBLEMS,
            ),
            routes.Route(
                method="GET",
                path="/api/v1/cloud/issuer",
                summary="The static files of this Platform's own OIDC issuer.",
                handler=self.show_issuer,
                answer=cloud.Issuer,
                problems=(*cloud_means.PROBLEMS, "conflict"),
            ),
            routes.Route(
                method="POST",
                path="/api/v1/cloud/issuer/rotate",
                summary="Show a further key of the issuer, which signs next.",
                handler=self.rotate_issuer,
                request=cloud.RotateIssuer,
                answer=admin.Done,
                changes=True,
                problems=cloud_means.PROBLEMS,
            ),
        )

    # Inside.

    async def _all_rules(self) -> dict[str, policy.Rules]:
        """Those of every provider; none where the file cannot be read: that stops orders only."""
        found: dict[str, policy.Rules] = {}
        for name in providers.PROVIDERS:
            try:
                rules = await self._means.rules_of(name)
            except policy.Unavailable:
                continue
            if rules is not None:
                found[name] = rules
        return found

    async def _connection(
        self,
        tx: contract.Tx,
        found: connections.Connection,
        *,
        totals: Sequence[costs.Total],
        caps: Sequence[consent.Caps],
    ) -> list[cloud.ConnectionCosts]:
        row = await tx.fetch_one(
            f"SELECT COUNT(*) AS machines FROM cloud_machines WHERE connection_id = ? AND {_LIVE}",  # noqa: S608 - a constant
            found.connection_id,
        )
        counted = 0 if row is None else int(row["machines"])
        most = [cap.most_machines for cap in caps if cap.most_machines is not None]
        return [
            cloud.ConnectionCosts(
                connection=found.name,
                provider=found.provider,
                machines=counted,
                most_machines=min(most, default=None),
                hourly_micros=total.hourly_micros,
                most_hourly_micros=min(
                    (
                        cap.most_hourly_micros
                        for cap in caps
                        if cap.most_hourly_micros is not None and cap.currency == total.currency
                    ),
                    default=None,
                ),
                currency=total.currency,
                spent_micros=total.spent_micros,
            )
            for total in totals
        ]


async def _nodes(tx: contract.Tx, found: Sequence[costs.Subject]) -> dict[str, str]:
    """The node of each machine among them."""
    wanted = [one.subject_id for one in found]
    if not wanted:
        return {}
    marks = ", ".join("?" for _ in wanted)
    rows = await tx.fetch_all(
        f"SELECT machine_id, node_id FROM cloud_machines WHERE machine_id IN ({marks})",  # noqa: S608 - marks
        *wanted,
    )
    return {row["machine_id"]: row["node_id"] for row in rows}


def _subject(found: costs.Subject, *, names: Any, nodes: Any) -> cloud.MachineCosts:
    return cloud.MachineCosts(
        subject_id=found.subject_id,
        what=found.what,
        node_id=nodes.get(found.subject_id),
        connection=names.get(found.connection_id, found.connection_id),
        hourly_micros=found.total.hourly_micros,
        currency=found.total.currency,
        spent_micros=found.total.spent_micros,
        since=found.since,
        until=found.until,
    )
