"""Enrollments: issue a single-use credential, withdraw it, look at what became of it, use it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from enlist import calls, methods
from wire_protocol import product

if TYPE_CHECKING:
    from wire_protocol import admin, enrollment


def create(
    node_id: str,
    *,
    ttl_minutes: int | None = None,
    replace: bool = False,
    labels: Mapping[str, str] | None = None,
    sources: Sequence[str] = (),
) -> "calls.Call[admin.IssueAnswer]":
    """Issues an enrollment; the answer alone carries the token, once.

    `sources` are networks (CIDR) from which alone it may be used. A repeat of the same call
    answers the record with the token None. Raises `Conflict` for a node that exists, was removed,
    or has an unused enrollment, unless `replace`.
    """
    return calls.Call(
        method="POST",
        path="/enrollments",
        answer="admin:IssueAnswer",
        body={
            "node_id": node_id,
            **calls.given(
                ttl_minutes=ttl_minutes,
                replace=replace or None,
                labels=dict(labels or {}),
                **{"from": list(sources)},
            ),
        },
        keyed=True,
    )


def list_(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    label: Sequence[str] = (),
) -> "calls.Call[admin.EnrollmentList]":
    """One page of all enrollments, whatever became of them."""
    return calls.Call(
        method="GET",
        path="/enrollments",
        answer="admin:EnrollmentList",
        query=calls.page_query(limit=limit, cursor=cursor, infra=infra, label=label),
    )


def withdraw(enrollment_id: str) -> "calls.Call[admin.Done]":
    """Makes an unused enrollment worthless; raises `Conflict` when it was used already."""
    return calls.Call(
        method="DELETE", path=f"/enrollments/{calls.part(enrollment_id)}", answer="admin:Done"
    )


def audit(
    *, limit: int | None = None, cursor: str | None = None, infra: str | None = None
) -> "calls.Call[admin.AttemptList]":
    """One page of the capped log of attempts to enroll, newest first."""
    return calls.Call(
        method="GET",
        path="/enrollments/audit",
        answer="admin:AttemptList",
        query=calls.page_query(limit=limit, cursor=cursor, infra=infra),
    )


def enroll(
    node_id: str,
    *,
    token: str,
    certificate_pem: str,
    url: str | None = None,
    version: str = product.VERSION,
    reported_labels: Mapping[str, str] | None = None,
) -> "calls.Call[enrollment.EnrollAnswer]":
    """Uses an enrollment by hand; machines do this by `enlist worker join`.

    Needs no API token: the enrollment token is what permits it. May be repeated with the same
    certificate key.
    """
    return calls.Call(
        method="POST",
        path="/enroll",
        answer="enrollment:EnrollAnswer",
        body={
            "node_id": node_id,
            "token": token,
            "certificate_pem": certificate_pem,
            "version": version,
            **calls.given(url=url, reported_labels=dict(reported_labels or {})),
        },
        repeatable=True,
    )


class Enrollments(methods.Noun):
    """`client.enrollments`."""

    create = methods.Sync(create)
    list = methods.Sync(list_)
    iterate = methods.Items(list_, of=lambda page: page.enrollments)
    withdraw = methods.Sync(withdraw)
    iterate_audit = methods.Items(audit, of=lambda page: page.attempts)
    audit = methods.Sync(audit)
    enroll = methods.Sync(enroll)


class AsyncEnrollments(methods.AsyncNoun):
    """`client.enrollments`, to be awaited."""

    create = methods.Async(create)
    list = methods.Async(list_)
    iterate = methods.AsyncItems(list_, of=lambda page: page.enrollments)
    withdraw = methods.Async(withdraw)
    iterate_audit = methods.AsyncItems(audit, of=lambda page: page.attempts)
    audit = methods.Async(audit)
    enroll = methods.Async(enroll)
