"""Which tables a backup holds, and why the others are left out.

Every table of the schema stands in exactly one of the two lists; a test compares them with the
schema on both databases, so that a new table is given its place by whoever makes it.
"""

from collections.abc import Mapping
from typing import Final

KEPT: Final = (
    "platform_values",
    "sealed_secrets",
    "trust_keys",
    "trust_statements",
    "certificates",
    "nodes",
    "enrollments",
    "api_tokens",
    "mesh_members",
    "identity_conflicts",
    "orders",
    "operations",
    "operation_steps",
    "operation_dependencies",
    "cloud_connections",
    "cloud_machines",
    "cloud_attempts",
    "cloud_children",
    "cloud_charges",
    "cloud_breakers",
    "cloud_orphans",
    "issuer_keys",
    "boot_phases",
    "enrollment_attempts",
    "action_log",
    "events",
)
"""In the order in which they are written: what a Platform cannot do without comes first."""

LEFT_OUT: Final[Mapping[str, str]] = {
    "migrations": "made anew by the restore",
    "engines": "processes that run",
    "published_addresses": "where engines ran; those that run say their own",
    "sessions": "connections that are open",
    "heartbeats": "what was heard lately; the next one comes within half a minute",
    "leases": "held by engines that run",
    "failure_counters": "failures of the last minutes",
    "idempotency": "answers of the last day, some to calls that the backup does not know",
}
