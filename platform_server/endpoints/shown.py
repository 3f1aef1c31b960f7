"""Nodes and enrollments as the API shows them: never a token, a hash of one, or a certificate."""

import datetime
from collections.abc import Mapping
from typing import Any, cast

from platform_server.mesh import members
from platform_server.nodes import configured, records, telling
from platform_server.tokens import records as enrollments
from runtime_kit import clock
from wire_protocol import admin, ids, product, versions


def node(
    found: records.Node,
    *,
    told: telling.Told | None = None,
    place: members.Member | None = None,
    now: datetime.datetime,
) -> admin.Node:
    """A registered node, with what it told of itself last and who else has used its identity."""
    known = told or telling.Told()
    seen = max(filter(None, (found.last_seen_at, known.heartbeat_at)), default=None)
    return admin.Node(
        node_id=found.node_id,
        agent_id=ids.agent_id_of(found.node_id),
        state=found.state.value,
        scheduling=cast("admin.Scheduling", found.scheduling),
        connectivity=cast("admin.Connectivity", found.connectivity),
        certificate_sha256=found.certificate_sha256,
        pin=found.pin,
        generation=found.generation,
        version=found.version,
        compatibility=versions.compatibility(found.version, platform_version=product.VERSION),
        labels=dict(found.labels),
        reported_labels=dict(found.reported_labels),
        roles=list(found.roles),
        capacity=dict(found.capacity) or None,
        infra=found.infra,
        enrolled_at=found.enrolled_at,
        last_seen_at=seen,
        clock_offset_ms=found.clock_offset_ms
        if known.clock_offset_ms is None
        else known.clock_offset_ms,
        address=found.url,
        provider_state=found.provider_state,
        heartbeat_age_ms=_age_ms(known.heartbeat_at or found.last_seen_at, now=now),
        probe_answered_at=found.probe_answered_at,
        reason=found.reason or known.conflict,
        mesh=None if place is None else _mesh(place, said=known.mesh or {}),
    )


def configured_node(
    found: configured.ConfiguredNode,
    *,
    learned: configured.Learned | None,
    infra: str,
    now: datetime.datetime,
) -> admin.Node:
    """A node of the settings, with what the probe has learned of it."""
    known = learned or configured.Learned(state="unreachable", reason="not-heard-since-start")
    seen = None if known.last_seen_at is None else clock.from_micros(known.last_seen_at)
    return admin.Node(
        node_id=found.node_id,
        agent_id=ids.agent_id_of(found.node_id),
        state=cast("admin.NodeState", known.state),
        scheduling="active",
        connectivity="listen",
        certificate_sha256=known.certificate_sha256,
        pin=found.pin,
        generation=1,
        version=known.version,
        compatibility=versions.compatibility(known.version, platform_version=product.VERSION),
        labels={},
        reported_labels={},
        roles=[],
        capacity=None,
        infra=infra,
        configured=True,
        enrolled_at=None,
        last_seen_at=seen,
        clock_offset_ms=known.clock_offset_ms,
        address=found.url,
        provider_state=None,
        heartbeat_age_ms=_age_ms(seen, now=now),
        probe_answered_at=seen,
        reason=known.reason,
    )


def enrollment(found: enrollments.Enrollment, *, now: datetime.datetime) -> admin.Enrollment:
    """An enrollment; one whose time has passed shows as expired, whenever that is written down."""
    state = found.state_at(now)
    return admin.Enrollment(
        enrollment_id=found.enrollment_id,
        node_id=found.node_id,
        state=state.value,
        infra=found.infra,
        labels=dict(found.labels),
        sources=list(found.sources),
        reenroll=found.reenroll,
        created_at=found.created_at,
        created_by=found.created_by,
        expires_at=found.expires_at,
        ended_at=found.ended_at
        if found.ended_at is not None or state is found.state
        else found.expires_at,
    )


def _mesh(place: members.Member, *, said: Mapping[str, Any]) -> admin.NodeMesh:
    return admin.NodeMesh(
        address=str(place.address),
        public_key=place.public_key,
        state=cast("Any", place.state),
        handshake_at=place.handshake_at,
        said=said.get("state"),
        said_reason=said.get("reason"),
    )


def _age_ms(seen: datetime.datetime | None, *, now: datetime.datetime) -> int | None:
    return None if seen is None else max(0, int((now - seen).total_seconds() * 1000))
