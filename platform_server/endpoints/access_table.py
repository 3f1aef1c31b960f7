"""Who may call which route: one table, and silence means no.

A route without a row here stops the start; so does a row without a route, since a rule for a
route that has gone hides a mistake. The values:

- a permission name: the caller must hold it (uid 0 and the engine's own uid on the local socket
  hold all);
- `TOKEN`: the route itself judges the enrollment token it is given;
- `ANYONE`: open to everybody: what says nothing of its subject (health), or has a limit of its
  own (trust);
- `LOCAL_OR_VIEW`: open on loopback and on the local socket, `nodes.view` beyond.
"""

from typing import Final

TOKEN: Final = "the enrollment token"  # noqa: S105 - the name of a rule
ANYONE: Final = "anyone"
LOCAL_OR_VIEW: Final = "anyone on loopback, nodes.view beyond"

ACCESS: Final[dict[tuple[str, str], str]] = {
    ("GET", "/healthz"): ANYONE,
    ("GET", "/readyz"): ANYONE,
    ("GET", "/metrics"): LOCAL_OR_VIEW,
    ("GET", "/openapi.json"): LOCAL_OR_VIEW,
    ("POST", "/api/v1/enroll"): TOKEN,
    ("POST", "/api/v1/trust"): ANYONE,
    ("GET", "/api/v1/nodes"): "nodes.view",
    ("GET", "/api/v1/nodes/{node_id}"): "nodes.view",
    ("PATCH", "/api/v1/nodes/{node_id}"): "nodes.manage",
    ("DELETE", "/api/v1/nodes/{node_id}"): "nodes.manage",
    ("POST", "/api/v1/nodes/{node_id}/allow"): "nodes.manage",
    ("POST", "/api/v1/nodes/{node_id}/maintenance"): "nodes.manage",
    ("POST", "/api/v1/nodes/{node_id}/drain"): "nodes.manage",
    ("POST", "/api/v1/nodes/{node_id}/resume"): "nodes.manage",
    ("GET", "/api/v1/nodes/{node_id}/orders"): "nodes.view",
    ("POST", "/api/v1/nodes/{node_id}/orders"): "nodes.manage",
    ("DELETE", "/api/v1/nodes/{node_id}/orders/{order_id}"): "nodes.manage",
    ("POST", "/api/v1/nodes/update"): "operations.manage",
    ("POST", "/api/v1/nodes/{node_id}/roll-back"): "operations.manage",
    ("GET", "/api/v1/operations"): "operations.view",
    ("GET", "/api/v1/operations/{operation_id}"): "operations.view",
    ("POST", "/api/v1/operations/{operation_id}/retry"): "operations.manage",
    ("POST", "/api/v1/operations/{operation_id}/cancel"): "operations.manage",
    ("POST", "/api/v1/operations/{operation_id}/resolve"): "operations.manage",
    ("GET", "/api/v1/cloud"): "cloud.view",
    ("GET", "/api/v1/cloud/catalog"): "cloud.view",
    ("GET", "/api/v1/cloud/costs"): "cloud.view",
    ("GET", "/api/v1/cloud/issuer"): "cloud.view",
    ("POST", "/api/v1/cloud/issuer/rotate"): "cloud.connect",
    ("GET", "/api/v1/cloud/connections"): "cloud.view",
    ("GET", "/api/v1/cloud/connections/{connection}"): "cloud.view",
    ("PUT", "/api/v1/cloud/connections/{connection}"): "cloud.connect",
    ("DELETE", "/api/v1/cloud/connections/{connection}"): "cloud.connect",
    ("POST", "/api/v1/cloud/connections/{connection}/check"): "cloud.connect",
    ("POST", "/api/v1/cloud/connections/{connection}/inventory"): "cloud.manage",
    ("PUT", "/api/v1/cloud/connections/{connection}/consent"): "cloud.connect",
    ("DELETE", "/api/v1/cloud/connections/{connection}/consent"): "cloud.connect",
    ("GET", "/api/v1/cloud/machines"): "cloud.view",
    ("POST", "/api/v1/cloud/machines"): "cloud.manage",
    ("GET", "/api/v1/cloud/machines/{machine}"): "cloud.view",
    ("POST", "/api/v1/cloud/machines/{machine}/refresh"): "cloud.view",
    ("GET", "/api/v1/cloud/machines/{machine}/console"): "cloud.manage",
    ("DELETE", "/api/v1/cloud/machines/{machine}"): "cloud.manage",
    ("POST", "/api/v1/cloud/machines/{machine}/reboot"): "cloud.manage",
    ("POST", "/api/v1/cloud/machines/{machine}/forget"): "cloud.manage",
    ("POST", "/api/v1/cloud/templates/{template}/resume"): "cloud.manage",
    ("GET", "/api/v1/cloud/volumes"): "cloud.view",
    ("POST", "/api/v1/cloud/volumes"): "cloud.manage",
    ("DELETE", "/api/v1/cloud/volumes/{resource}"): "cloud.manage",
    ("POST", "/api/v1/cloud/volumes/{resource}/attach"): "cloud.manage",
    ("POST", "/api/v1/cloud/volumes/{resource}/detach"): "cloud.manage",
    ("POST", "/api/v1/cloud/volumes/{resource}/forget"): "cloud.manage",
    ("GET", "/api/v1/cloud/snapshots"): "cloud.view",
    ("POST", "/api/v1/cloud/snapshots"): "cloud.manage",
    ("DELETE", "/api/v1/cloud/snapshots/{resource}"): "cloud.manage",
    ("POST", "/api/v1/cloud/snapshots/{resource}/forget"): "cloud.manage",
    ("GET", "/api/v1/cloud/addresses"): "cloud.view",
    ("POST", "/api/v1/cloud/addresses"): "cloud.manage",
    ("DELETE", "/api/v1/cloud/addresses/{resource}"): "cloud.manage",
    ("POST", "/api/v1/cloud/addresses/{resource}/attach"): "cloud.manage",
    ("POST", "/api/v1/cloud/addresses/{resource}/detach"): "cloud.manage",
    ("POST", "/api/v1/cloud/addresses/{resource}/forget"): "cloud.manage",
    ("GET", "/api/v1/cloud/orphans"): "cloud.view",
    ("POST", "/api/v1/cloud/orphans/delete"): "cloud.manage",
    ("POST", "/api/v1/cloud/orphans/adopt"): "cloud.manage",
    ("POST", "/api/v1/enrollments"): "nodes.enroll",
    ("GET", "/api/v1/enrollments"): "nodes.view",
    ("DELETE", "/api/v1/enrollments/{enrollment_id}"): "nodes.enroll",
    ("GET", "/api/v1/enrollments/audit"): "nodes.manage",
    ("GET", "/api/v1/audit"): "audit.view",
    ("GET", "/api/v1/audit/verify"): "audit.view",
    ("GET", "/api/v1/platform"): "nodes.view",
    ("GET", "/api/v1/platform/checkup"): "platform.manage",
    ("POST", "/api/v1/platform/rotate-master-key"): "platform.manage",
    ("POST", "/api/v1/platform/rotate-trust-key"): "platform.manage",
    ("POST", "/api/v1/platform/rotate-tls-key"): "platform.manage",
    ("GET", "/api/v1/platform/bundles"): "nodes.view",
    ("POST", "/api/v1/platform/bundles"): "platform.manage",
    ("POST", "/api/v1/platform/bundle-pieces"): "platform.manage",
    ("DELETE", "/api/v1/platform/bundles/{bundle}"): "platform.manage",
    ("POST", "/api/v1/backup"): "backup.manage",
    ("GET", "/api/v1/events"): "nodes.view",
    ("GET", "/api/v1/tokens"): "tokens.manage",
    ("POST", "/api/v1/tokens"): "tokens.manage",
    ("DELETE", "/api/v1/tokens/{token_id}"): "tokens.manage",
}

# `?check=true` changes nothing and needs only the right to look (the design's "view permission");
# what has no view permission of its own needs the full one.
VIEW_OF: Final[dict[str, str]] = {
    "nodes.manage": "nodes.view",
    "nodes.enroll": "nodes.view",
    "platform.manage": "nodes.view",
    "operations.manage": "operations.view",
    "cloud.connect": "cloud.view",
    "cloud.manage": "cloud.view",
}


class Unlisted(Exception):
    """A route and the access table disagree: add or remove the row in access_table.py."""


def permission_of(key: tuple[str, str]) -> str:
    """The rule for the route; raises `Unlisted` when nobody has written one."""
    try:
        return ACCESS[key]
    except KeyError:
        raise Unlisted(f"The route {key[0]} {key[1]} is not in the access table.") from None


def require_complete(keys: frozenset[tuple[str, str]]) -> None:
    """Raises `Unlisted` unless routes and rows are the same set."""
    for key in sorted(keys ^ ACCESS.keys()):
        side = "is not in the access table" if key in keys else "is in the table but not served"
        raise Unlisted(f"The route {key[0]} {key[1]} {side}.")
