"""`/enrollments`: issue a token, list, withdraw, and the log of attempts.

A token appears in the answer of the call that issued it and nowhere else (`invitations`). A node
id that is taken by the settings is refused and the attempt recorded, in both logs: somebody is
trying to take over the operator's own node.
"""

import ipaddress
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from platform_server.audit import events
from platform_server.endpoints import calls, cursors, invitations, nodes, refusals, routes, shown
from platform_server.enrollment import attempts
from platform_server.nodes import configured, registry
from platform_server.store import contract
from platform_server.tokens import ending, issue, records
from wire_protocol import admin, ids, times


class Enrollments:
    """The handlers. `invitation` is asked at each issue; None means that nodes are turned off."""

    def __init__(
        self,
        *,
        operators: configured.ConfiguredNodes,
        invitation: Callable[[], invitations.Invitation] | None,
        cap: attempts.Cap,
    ) -> None:
        self._operators = operators
        self._invitation = invitation
        self._cap = cap

    async def create(self, call: calls.Call[admin.IssueRequest, routes.NoQuery]) -> calls.Reply:
        """Issues an enrollment token for one node id."""
        body = call.body
        node_id = ids.NodeId(body.node_id)
        sources = _networks(body.from_)
        if self._invitation is None:
            raise refusals.Refusal(
                "nodes-disabled",
                "This Platform takes no nodes. Start it with --enrollment-port, or set "
                "[dispatch] enabled = true.",
            )
        invitation = self._invitation()
        now = call.now()
        infra = call.settings.platform.infra

        async def ask(tx: contract.Tx) -> issue.Standing:
            standing = await registry.standing_of(tx, node_id=node_id, operators=self._operators)
            if standing is issue.Standing.REGISTERED and body.replace:
                call.require("nodes.manage")
            return standing

        async def work(tx: contract.Tx) -> calls.Changed:
            issued = await issue.issue(
                tx,
                node_id=node_id,
                ask=ask,
                replace=body.replace,
                ttl_minutes=body.ttl_minutes,
                labels=body.labels,
                sources=sources,
                infra=infra,
                created_by=call.principal.name,
                now=now,
            )
            await self._tell(tx, call=call, issued=issued)
            return calls.Changed(
                changes=invitations.changes_of(issued),
                answer=invitations.answer_of(issued, invitation=invitation),
            )

        try:
            return await call.mutate(work)
        except issue.CannotIssue as fault:
            if fault.code == "node-exists" and not call.check:
                await call.store.transact(
                    lambda tx: self._record_exists(tx, call=call, node_id=node_id)
                )
            raise refusals.Refusal(fault.code, str(fault)) from None

    async def list_page(
        self, call: calls.Call[None, routes.LabelledPageQuery]
    ) -> admin.EnrollmentList:
        """Enrollments, newest first, ended ones too."""
        filters = [nodes.label_filter(text) for text in call.query.label]
        after = _place(call.query.cursor, kinds=(int, str))
        now = call.now()
        found = await call.read(
            lambda tx: records.list_page(
                tx,
                limit=call.query.limit + 1,
                infra=call.query.infra,
                after=after,
                label_filters=filters,
            )
        )
        page = found[: call.query.limit]
        return admin.EnrollmentList(
            enrollments=[shown.enrollment(one, now=now) for one in page],
            next_cursor=cursors.encode(*records.place_of(page[-1]))
            if len(found) > len(page)
            else None,
        )

    async def withdraw(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Takes an unused enrollment back."""
        enrollment_id = call.path["enrollment_id"]
        now = call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            found = await records.find(tx, enrollment_id=enrollment_id)
            if found is None:
                raise refusals.Refusal("not-found", f"There is no enrollment {enrollment_id}.")
            state = found.state_at(now)
            if state is not found.state or not await ending.withdraw(
                tx, enrollment_id=enrollment_id, now=now
            ):
                raise refusals.Refusal(
                    "enrollment-ended",
                    f"The enrollment {enrollment_id} for {found.node_id} is {state}; "
                    "there is nothing to take back.",
                )
            await call.record(
                tx,
                action="enrollments.withdraw",
                target=found.node_id,
                infra=found.infra,
                details={"enrollment_id": enrollment_id},
            )
            await events.append(
                tx,
                at=now,
                kind="enrollment.withdrawn",
                subject=enrollment_id,
                infra=found.infra,
                data={"node_id": found.node_id},
            )
            changes = [
                admin.Change(
                    action="withdraw",
                    target=found.node_id,
                    detail=f"the enrollment {enrollment_id} can no longer be used",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        return await call.mutate(work)

    async def list_attempts(self, call: calls.Call[None, routes.PageQuery]) -> admin.AttemptList:
        """The capped log of attempts, the last to happen first."""
        after = _place(call.query.cursor, kinds=(int, int))
        found = await call.read(
            lambda tx: attempts.list_page(
                tx, limit=call.query.limit + 1, infra=call.query.infra, after=after
            )
        )
        page = found[: call.query.limit]
        return admin.AttemptList(
            attempts=[
                admin.EnrollmentAttempt(
                    outcome=one.outcome.value,
                    reason=one.reason,
                    node_id=one.node_id,
                    version=one.version,
                    count=one.count,
                    first_at=one.first_at,
                    last_at=one.last_at,
                )
                for one in page
            ],
            next_cursor=cursors.encode(*attempts.place_of(page[-1]))
            if len(found) > len(page)
            else None,
        )

    async def _tell(
        self,
        tx: contract.Tx,
        *,
        call: calls.Call[admin.IssueRequest, routes.NoQuery],
        issued: issue.Issued,
    ) -> None:
        enrollment = issued.enrollment
        await call.record(
            tx,
            action="enrollments.issue",
            target=enrollment.node_id,
            infra=enrollment.infra,
            details={
                "enrollment_id": enrollment.enrollment_id,
                "expires_at": times.to_rfc3339(enrollment.expires_at),
                "labels": dict(enrollment.labels),
                "from": list(enrollment.sources),
                "reenroll": enrollment.reenroll,
                "replaced": issued.replaced,
            },
        )
        await events.append(
            tx,
            at=enrollment.created_at,
            kind="enrollment.issued",
            subject=enrollment.enrollment_id,
            infra=enrollment.infra,
            data={"node_id": enrollment.node_id, "reenroll": enrollment.reenroll},
        )

    async def _record_exists(
        self,
        tx: contract.Tx,
        *,
        call: calls.Call[admin.IssueRequest, routes.NoQuery],
        node_id: ids.NodeId,
    ) -> None:
        """In both logs, although nothing was issued."""
        holds = self._operators.holds(node_id)
        await attempts.record(
            tx,
            outcome=attempts.Outcome.NODE_EXISTS,
            reason="configured" if holds else "registered",
            node_id=node_id,
            version=None,
            infra=call.settings.platform.infra,
            now=call.now(),
            cap=self._cap,
        )
        await call.record(
            tx,
            action="enrollments.issue-refused",
            target=node_id,
            infra=call.settings.platform.infra,
            details={"code": "node-exists", "configured": holds},
        )

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        return (
            routes.Route(
                method="POST",
                path="/api/v1/enrollments",
                summary="Issue an enrollment token; it is shown in this answer only.",
                handler=self.create,
                request=admin.IssueRequest,
                answer=admin.IssueAnswer,
                status=201,
                changes=True,
                secret_fields=("token", "join_token", "command"),
                problems=("node-exists", "enrollment-pending", "nodes-disabled", "node-removed"),
            ),
            routes.Route(
                method="GET",
                path="/api/v1/enrollments",
                summary="List enrollments, newest first, without their secrets.",
                handler=self.list_page,
                query=routes.LabelledPageQuery,
                cursor=(int, str),
                answer=admin.EnrollmentList,
            ),
            routes.Route(
                method="DELETE",
                path="/api/v1/enrollments/{enrollment_id}",
                summary="Take an unused enrollment back.",
                handler=self.withdraw,
                answer=admin.Done,
                changes=True,
                parameters={"enrollment_id": "The public id of the enrollment, 16 hex digits."},
                problems=("not-found", "enrollment-ended"),
            ),
            routes.Route(
                method="GET",
                path="/api/v1/enrollments/audit",
                summary="List enrollment attempts, the last to happen first.",
                handler=self.list_attempts,
                query=routes.PageQuery,
                cursor=(int, int),
                answer=admin.AttemptList,
            ),
        )


def _networks(texts: Sequence[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        try:
            found.append(str(ipaddress.ip_network(text.strip())))
        except ValueError:
            raise refusals.invalid(
                "from",
                f"from: {shlex.quote(text[:64])} is not a network such as 192.0.2.0/24 or "
                "2001:db8::/48 (no bits may be set behind the prefix).",
            ) from None
    return found


def _place(cursor: str | None, *, kinds: tuple[type, type]) -> "Any":
    return None if cursor is None else cursors.decode(cursor, kinds=kinds)
