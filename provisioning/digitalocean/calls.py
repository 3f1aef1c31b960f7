"""Every call that is made to DigitalOcean, and the scope of a token that each needs.

The least-privilege text is made of this table, and a fake's ledger is compared with it.
"""

from typing import Final

from provisioning import contract

_FEATURE = contract.Feature
_Call = contract.ApiCall

ACCOUNT: Final = _Call(name="GET /v2/account", feature=_FEATURE.CHECK, right="account:read")
SIZES: Final = _Call(name="GET /v2/sizes", feature=_FEATURE.CATALOG, right="sizes:read")
IMAGES: Final = _Call(name="GET /v2/images", feature=_FEATURE.CATALOG, right="image:read")
IMAGE: Final = _Call(name="GET /v2/images/{id}", feature=_FEATURE.CATALOG, right="image:read")

LIST: Final = _Call(name="GET /v2/droplets", feature=_FEATURE.MACHINES, right="droplet:read")
GET: Final = _Call(name="GET /v2/droplets/{id}", feature=_FEATURE.MACHINES, right="droplet:read")
COMPANIONS: Final = _Call(
    name="GET /v2/droplets/{id}/destroy_with_associated_resources",
    feature=_FEATURE.MACHINES,
    right="droplet:read",
)
ACTION: Final = _Call(name="GET /v2/actions/{id}", feature=_FEATURE.MACHINES, right="actions:read")
CREATE: Final = _Call(
    name="POST /v2/droplets",
    feature=_FEATURE.MACHINES,
    right="droplet:create",
    changes=True,
    costs=True,
)
DELETE: Final = _Call(
    name="DELETE /v2/droplets/{id}",
    feature=_FEATURE.MACHINES,
    right="droplet:delete",
    changes=True,
)
REBOOT: Final = _Call(
    name="POST /v2/droplets/{id}/actions",
    feature=_FEATURE.MACHINES,
    right="droplet:update",
    changes=True,
)

KEYS: Final = _Call(name="GET /v2/account/keys", feature=_FEATURE.MACHINES, right="ssh_key:read")
KEY: Final = _Call(
    name="GET /v2/account/keys/{id}", feature=_FEATURE.MACHINES, right="ssh_key:read"
)
CREATE_KEY: Final = _Call(
    name="POST /v2/account/keys", feature=_FEATURE.MACHINES, right="ssh_key:create", changes=True
)
DELETE_KEY: Final = _Call(
    name="DELETE /v2/account/keys/{id}",
    feature=_FEATURE.MACHINES,
    right="ssh_key:delete",
    changes=True,
)
CREATE_TAG: Final = _Call(
    name="POST /v2/tags", feature=_FEATURE.MACHINES, right="tag:create", changes=True
)
FIREWALLS: Final = _Call(name="GET /v2/firewalls", feature=_FEATURE.MACHINES, right="firewall:read")
FIREWALL: Final = _Call(
    name="GET /v2/firewalls/{id}", feature=_FEATURE.MACHINES, right="firewall:read"
)
CREATE_FIREWALL: Final = _Call(
    name="POST /v2/firewalls", feature=_FEATURE.MACHINES, right="firewall:create", changes=True
)
DELETE_FIREWALL: Final = _Call(
    name="DELETE /v2/firewalls/{id}",
    feature=_FEATURE.MACHINES,
    right="firewall:delete",
    changes=True,
)

VOLUMES: Final = _Call(name="GET /v2/volumes", feature=_FEATURE.VOLUMES, right="block_storage:read")
VOLUME: Final = _Call(
    name="GET /v2/volumes/{id}", feature=_FEATURE.VOLUMES, right="block_storage:read"
)
CREATE_VOLUME: Final = _Call(
    name="POST /v2/volumes",
    feature=_FEATURE.VOLUMES,
    right="block_storage:create",
    changes=True,
    costs=True,
)
VOLUME_ACTION: Final = _Call(
    name="POST /v2/volumes/{id}/actions",
    feature=_FEATURE.VOLUMES,
    right="block_storage_action:create",
    changes=True,
)
DELETE_VOLUME: Final = _Call(
    name="DELETE /v2/volumes/{id}",
    feature=_FEATURE.VOLUMES,
    right="block_storage:delete",
    changes=True,
)

SNAPSHOTS: Final = _Call(
    name="GET /v2/snapshots", feature=_FEATURE.SNAPSHOTS, right="snapshot:read"
)
SNAPSHOT: Final = _Call(
    name="GET /v2/snapshots/{id}", feature=_FEATURE.SNAPSHOTS, right="snapshot:read"
)
SNAPSHOT_DROPLET: Final = _Call(
    name="POST /v2/droplets/{id}/actions",
    feature=_FEATURE.SNAPSHOTS,
    right="droplet:update",
    changes=True,
    costs=True,
)
SNAPSHOT_VOLUME: Final = _Call(
    name="POST /v2/volumes/{id}/snapshots",
    feature=_FEATURE.SNAPSHOTS,
    right="block_storage_snapshot:create",
    changes=True,
    costs=True,
)
DELETE_SNAPSHOT: Final = _Call(
    name="DELETE /v2/snapshots/{id}",
    feature=_FEATURE.SNAPSHOTS,
    right="snapshot:delete",
    changes=True,
)

ADDRESSES: Final = _Call(
    name="GET /v2/reserved_ips", feature=_FEATURE.ADDRESSES, right="reserved_ip:read"
)
ADDRESS: Final = _Call(
    name="GET /v2/reserved_ips/{ip}", feature=_FEATURE.ADDRESSES, right="reserved_ip:read"
)
CREATE_ADDRESS: Final = _Call(
    name="POST /v2/reserved_ips",
    feature=_FEATURE.ADDRESSES,
    right="reserved_ip:create",
    changes=True,
    costs=True,
)
ADDRESS_ACTION: Final = _Call(
    name="POST /v2/reserved_ips/{ip}/actions",
    feature=_FEATURE.ADDRESSES,
    right="reserved_ip:update",
    changes=True,
)
DELETE_ADDRESS: Final = _Call(
    name="DELETE /v2/reserved_ips/{ip}",
    feature=_FEATURE.ADDRESSES,
    right="reserved_ip:delete",
    changes=True,
)

ALL: Final = tuple(one for one in dict(globals()).values() if isinstance(one, _Call))
"""In the order of this file."""

ALONGSIDE: Final = ("tag:create", "tag:read", "regions:read")
"""Scopes that no call of its own asks for: tagging at create, and what a create reads."""
