"""Every call that is made to Hetzner Cloud, and what it is for.

A token there is bound to one project and either reads or reads and writes; there is no finer right
to ask for, so `right` is one of these two words.
"""

from typing import Final

from provisioning.contract import ApiCall, Feature

_READ: Final = "read"
_WRITE: Final = "read & write"

PROBE_WRITE: Final = ApiCall(name="POST /v1/placement_groups", feature=Feature.CHECK, right=_WRITE)
"""Sent with an empty body, which can only be refused; so it changes nothing."""
FIRST_SERVER: Final = ApiCall(name="GET /v1/servers", feature=Feature.CHECK, right=_READ)

SERVER_TYPES: Final = ApiCall(name="GET /v1/server_types", feature=Feature.CATALOG, right=_READ)
PRICING: Final = ApiCall(name="GET /v1/pricing", feature=Feature.CATALOG, right=_READ)
IMAGES: Final = ApiCall(name="GET /v1/images", feature=Feature.CATALOG, right=_READ)
IMAGE: Final = ApiCall(name="GET /v1/images/{id}", feature=Feature.CATALOG, right=_READ)
NETWORKS: Final = ApiCall(name="GET /v1/networks", feature=Feature.CATALOG, right=_READ)

LIST_SERVERS: Final = ApiCall(name="GET /v1/servers", feature=Feature.MACHINES, right=_READ)
GET_SERVER: Final = ApiCall(name="GET /v1/servers/{id}", feature=Feature.MACHINES, right=_READ)
CREATE_SERVER: Final = ApiCall(
    name="POST /v1/servers", feature=Feature.MACHINES, right=_WRITE, changes=True, costs=True
)
DELETE_SERVER: Final = ApiCall(
    name="DELETE /v1/servers/{id}", feature=Feature.MACHINES, right=_WRITE, changes=True
)
REBOOT: Final = ApiCall(
    name="POST /v1/servers/{id}/actions/reboot",
    feature=Feature.MACHINES,
    right=_WRITE,
    changes=True,
)
ACTIONS: Final = ApiCall(name="GET /v1/actions", feature=Feature.MACHINES, right=_READ)

LIST_SSH_KEYS: Final = ApiCall(name="GET /v1/ssh_keys", feature=Feature.MACHINES, right=_READ)
GET_SSH_KEY: Final = ApiCall(name="GET /v1/ssh_keys/{id}", feature=Feature.MACHINES, right=_READ)
CREATE_SSH_KEY: Final = ApiCall(
    name="POST /v1/ssh_keys", feature=Feature.MACHINES, right=_WRITE, changes=True
)
DELETE_SSH_KEY: Final = ApiCall(
    name="DELETE /v1/ssh_keys/{id}", feature=Feature.MACHINES, right=_WRITE, changes=True
)
LIST_FIREWALLS: Final = ApiCall(name="GET /v1/firewalls", feature=Feature.MACHINES, right=_READ)
GET_FIREWALL: Final = ApiCall(name="GET /v1/firewalls/{id}", feature=Feature.MACHINES, right=_READ)
CREATE_FIREWALL: Final = ApiCall(
    name="POST /v1/firewalls", feature=Feature.MACHINES, right=_WRITE, changes=True
)
DELETE_FIREWALL: Final = ApiCall(
    name="DELETE /v1/firewalls/{id}", feature=Feature.MACHINES, right=_WRITE, changes=True
)

SET_RULES: Final = ApiCall(
    name="POST /v1/firewalls/{id}/actions/set_rules",
    feature=Feature.MACHINES,
    right=_WRITE,
    changes=True,
)

LIST_VOLUMES: Final = ApiCall(name="GET /v1/volumes", feature=Feature.VOLUMES, right=_READ)
GET_VOLUME: Final = ApiCall(name="GET /v1/volumes/{id}", feature=Feature.VOLUMES, right=_READ)
CREATE_VOLUME: Final = ApiCall(
    name="POST /v1/volumes", feature=Feature.VOLUMES, right=_WRITE, changes=True, costs=True
)
DELETE_VOLUME: Final = ApiCall(
    name="DELETE /v1/volumes/{id}", feature=Feature.VOLUMES, right=_WRITE, changes=True
)
ATTACH_VOLUME: Final = ApiCall(
    name="POST /v1/volumes/{id}/actions/attach",
    feature=Feature.VOLUMES,
    right=_WRITE,
    changes=True,
)
DETACH_VOLUME: Final = ApiCall(
    name="POST /v1/volumes/{id}/actions/detach",
    feature=Feature.VOLUMES,
    right=_WRITE,
    changes=True,
)

LIST_SNAPSHOTS: Final = ApiCall(name="GET /v1/images", feature=Feature.SNAPSHOTS, right=_READ)
GET_SNAPSHOT: Final = ApiCall(name="GET /v1/images/{id}", feature=Feature.SNAPSHOTS, right=_READ)
CREATE_SNAPSHOT: Final = ApiCall(
    name="POST /v1/servers/{id}/actions/create_image",
    feature=Feature.SNAPSHOTS,
    right=_WRITE,
    changes=True,
    costs=True,
)
DELETE_SNAPSHOT: Final = ApiCall(
    name="DELETE /v1/images/{id}", feature=Feature.SNAPSHOTS, right=_WRITE, changes=True
)

LIST_ADDRESSES: Final = ApiCall(name="GET /v1/primary_ips", feature=Feature.ADDRESSES, right=_READ)
GET_ADDRESS: Final = ApiCall(
    name="GET /v1/primary_ips/{id}", feature=Feature.ADDRESSES, right=_READ
)
CREATE_ADDRESS: Final = ApiCall(
    name="POST /v1/primary_ips", feature=Feature.ADDRESSES, right=_WRITE, changes=True, costs=True
)
DELETE_ADDRESS: Final = ApiCall(
    name="DELETE /v1/primary_ips/{id}", feature=Feature.ADDRESSES, right=_WRITE, changes=True
)
ASSIGN_ADDRESS: Final = ApiCall(
    name="POST /v1/primary_ips/{id}/actions/assign",
    feature=Feature.ADDRESSES,
    right=_WRITE,
    changes=True,
)
UNASSIGN_ADDRESS: Final = ApiCall(
    name="POST /v1/primary_ips/{id}/actions/unassign",
    feature=Feature.ADDRESSES,
    right=_WRITE,
    changes=True,
)

SHUT_DOWN: Final = ApiCall(
    name="POST /v1/servers/{id}/actions/shutdown",
    feature=Feature.ADDRESSES,
    right=_WRITE,
    changes=True,
)
POWER_OFF: Final = ApiCall(
    name="POST /v1/servers/{id}/actions/poweroff",
    feature=Feature.ADDRESSES,
    right=_WRITE,
    changes=True,
)
POWER_ON: Final = ApiCall(
    name="POST /v1/servers/{id}/actions/poweron",
    feature=Feature.ADDRESSES,
    right=_WRITE,
    changes=True,
)

ALL: Final = tuple(one for one in list(globals().values()) if isinstance(one, ApiCall))
