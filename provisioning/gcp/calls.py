"""Every call that the Google driver makes, by the names of its own description, and its permission.

The custom role in the documentation is made of this table, and what a fake saw is compared with it.

Known limit: permissions do not cover organisation policies (no external address, say); only a use
finds those.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from provisioning import contract

_CHECK = contract.Feature.CHECK
_CATALOG = contract.Feature.CATALOG
_MACHINES = contract.Feature.MACHINES
_SSH = contract.Feature.SSH
_VOLUMES = contract.Feature.VOLUMES
_SNAPSHOTS = contract.Feature.SNAPSHOTS
_ADDRESSES = contract.Feature.ADDRESSES


def _row(
    name: str,
    feature: contract.Feature,
    right: str | None = None,
    *,
    changes: bool | None = None,
    costs: bool = False,
) -> contract.ApiCall:
    return contract.ApiCall(
        name=name,
        feature=feature,
        right=right,
        changes=not name.startswith("GET ") if changes is None else changes,
        costs=costs,
    )


TOKEN: Final = _row("POST oauth2.token", _CHECK, changes=False)
TEST_RIGHTS: Final = _row(
    "POST cloudresourcemanager.projects.testIamPermissions", _CHECK, changes=False
)
SERVICE: Final = _row("GET serviceusage.services.get", _CHECK, "serviceusage.services.get")
REGION: Final = _row("GET compute.regions.get", _CHECK, "compute.regions.get")
ZONES: Final = _row("GET compute.zones.list", _CATALOG, "compute.zones.list")
SIZES: Final = _row(
    "GET compute.machineTypes.aggregatedList", _CATALOG, "compute.machineTypes.list"
)
NETWORK: Final = _row("GET compute.networks.get", _CATALOG, "compute.networks.get")
SUBNETWORK: Final = _row("GET compute.subnetworks.get", _CATALOG, "compute.subnetworks.get")

INSERT: Final = _row(
    "POST compute.instances.insert", _MACHINES, "compute.instances.create", costs=True
)
GET: Final = _row("GET compute.instances.get", _MACHINES, "compute.instances.get")
LIST: Final = _row("GET compute.instances.aggregatedList", _MACHINES, "compute.instances.list")
DELETE: Final = _row("DELETE compute.instances.delete", _MACHINES, "compute.instances.delete")
RESET: Final = _row("POST compute.instances.reset", _MACHINES, "compute.instances.reset")
CONSOLE: Final = _row(
    "GET compute.instances.getSerialPortOutput",
    _MACHINES,
    "compute.instances.getSerialPortOutput",
)
OPERATION: Final = _row("GET compute.zoneOperations.get", _MACHINES, "compute.zoneOperations.get")
OPERATIONS: Final = _row(
    "GET compute.zoneOperations.list", _MACHINES, "compute.zoneOperations.list"
)
GET_DISK: Final = _row("GET compute.disks.get", _MACHINES, "compute.disks.get")
LIST_DISKS: Final = _row("GET compute.disks.aggregatedList", _MACHINES, "compute.disks.list")
DELETE_DISK: Final = _row("DELETE compute.disks.delete", _MACHINES, "compute.disks.delete")

GET_RULE: Final = _row("GET compute.firewalls.get", _SSH, "compute.firewalls.get")
LIST_RULES: Final = _row("GET compute.firewalls.list", _SSH, "compute.firewalls.list")
INSERT_RULE: Final = _row("POST compute.firewalls.insert", _SSH, "compute.firewalls.create")
DELETE_RULE: Final = _row("DELETE compute.firewalls.delete", _SSH, "compute.firewalls.delete")

INSERT_DISK: Final = _row("POST compute.disks.insert", _VOLUMES, "compute.disks.create", costs=True)
ATTACH_DISK: Final = _row(
    "POST compute.instances.attachDisk", _VOLUMES, "compute.instances.attachDisk"
)
DETACH_DISK: Final = _row(
    "POST compute.instances.detachDisk", _VOLUMES, "compute.instances.detachDisk"
)

GET_SNAPSHOT: Final = _row("GET compute.snapshots.get", _SNAPSHOTS, "compute.snapshots.get")
LIST_SNAPSHOTS: Final = _row("GET compute.snapshots.list", _SNAPSHOTS, "compute.snapshots.list")
SNAPSHOT: Final = _row(
    "POST compute.disks.createSnapshot", _SNAPSHOTS, "compute.disks.createSnapshot", costs=True
)
DELETE_SNAPSHOT: Final = _row(
    "DELETE compute.snapshots.delete", _SNAPSHOTS, "compute.snapshots.delete"
)

GET_ADDRESS: Final = _row("GET compute.addresses.get", _ADDRESSES, "compute.addresses.get")
LIST_ADDRESSES: Final = _row(
    "GET compute.addresses.aggregatedList", _ADDRESSES, "compute.addresses.list"
)
INSERT_ADDRESS: Final = _row(
    "POST compute.addresses.insert", _ADDRESSES, "compute.addresses.create", costs=True
)
DELETE_ADDRESS: Final = _row(
    "DELETE compute.addresses.delete", _ADDRESSES, "compute.addresses.delete"
)
ADD_ACCESS: Final = _row(
    "POST compute.instances.addAccessConfig", _ADDRESSES, "compute.instances.addAccessConfig"
)
DROP_ACCESS: Final = _row(
    "POST compute.instances.deleteAccessConfig",
    _ADDRESSES,
    "compute.instances.deleteAccessConfig",
)

CALLS: Final[tuple[contract.ApiCall, ...]] = (
    TOKEN,
    TEST_RIGHTS,
    SERVICE,
    REGION,
    ZONES,
    SIZES,
    NETWORK,
    SUBNETWORK,
    INSERT,
    GET,
    LIST,
    DELETE,
    RESET,
    CONSOLE,
    OPERATION,
    OPERATIONS,
    GET_DISK,
    LIST_DISKS,
    DELETE_DISK,
    GET_RULE,
    LIST_RULES,
    INSERT_RULE,
    DELETE_RULE,
    INSERT_DISK,
    ATTACH_DISK,
    DETACH_DISK,
    GET_SNAPSHOT,
    LIST_SNAPSHOTS,
    SNAPSHOT,
    DELETE_SNAPSHOT,
    GET_ADDRESS,
    LIST_ADDRESSES,
    INSERT_ADDRESS,
    DELETE_ADDRESS,
    ADD_ACCESS,
    DROP_ACCESS,
)

WITH_IT: Final[Mapping[str, tuple[str, ...]]] = {
    INSERT.name: (
        "compute.disks.create",
        "compute.disks.setLabels",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setTags",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
    ),
    INSERT_RULE.name: ("compute.networks.updatePolicy",),
    INSERT_DISK.name: ("compute.disks.setLabels",),
    ATTACH_DISK.name: ("compute.disks.use",),
    SNAPSHOT.name: (
        "compute.snapshots.create",
        "compute.snapshots.setLabels",
        "compute.snapshots.useReadOnly",
    ),
    INSERT_ADDRESS.name: ("compute.addresses.setLabels",),
    ADD_ACCESS.name: ("compute.addresses.use",),
}
"""What a call also needs, for what its body holds."""


def rights_of(features: Iterable[contract.Feature]) -> tuple[str, ...]:
    """The permissions that these features need, sorted."""
    wanted = set(features)
    rights: set[str] = set()
    for call in CALLS:
        if call.feature in wanted:
            rights.update(WITH_IT.get(call.name, ()))
            if call.right is not None:
                rights.add(call.right)
    return tuple(sorted(rights))
