"""Every call that the Azure driver makes, the right each needs, and from where it is given.

The least-privilege role in the documentation is made of this table, and what a fake saw is
compared with it. Rights are Azure's own words for actions of a role definition.

Known limit: that polling an operation needs no right of its own is Azure's documented behaviour,
not something that can be read from a role.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from provisioning import contract

_CHECK = contract.Feature.CHECK
_CATALOG = contract.Feature.CATALOG
_MACHINES = contract.Feature.MACHINES
_VOLUMES = contract.Feature.VOLUMES
_SNAPSHOTS = contract.Feature.SNAPSHOTS
_ADDRESSES = contract.Feature.ADDRESSES

VM: Final = "Microsoft.Compute/virtualMachines"
DISK: Final = "Microsoft.Compute/disks"
SNAPSHOT: Final = "Microsoft.Compute/snapshots"
NIC: Final = "Microsoft.Network/networkInterfaces"
ADDRESS: Final = "Microsoft.Network/publicIPAddresses"
GROUP: Final = "Microsoft.Network/networkSecurityGroups"
NETWORK: Final = "Microsoft.Network/virtualNetworks"


def _row(
    verb: str,
    kind: str,
    feature: contract.Feature,
    *,
    right: str | None = None,
    costs: bool = False,
) -> contract.ApiCall:
    action = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}.get(verb, "")
    return contract.ApiCall(
        name=f"{verb} {kind}",
        feature=feature,
        right=right or f"{kind}/{action}",
        changes=verb != "GET",
        costs=costs,
    )


TOKEN: Final = contract.ApiCall(name="POST oauth2/v2.0/token", feature=_CHECK)
OPERATION: Final = contract.ApiCall(name="GET operations", feature=_MACHINES)

RESOURCE_GROUP: Final = _row(
    "GET",
    "resourceGroups",
    _CHECK,
    right="Microsoft.Resources/subscriptions/resourceGroups/read",
)
PERMISSIONS: Final = _row("GET", "Microsoft.Authorization/permissions", _CHECK)
REGISTRATION: Final = _row(
    "GET", "providers", _CATALOG, right="Microsoft.Resources/subscriptions/providers/read"
)
LOCATIONS: Final = _row(
    "GET", "locations", _CATALOG, right="Microsoft.Resources/subscriptions/locations/read"
)
SKUS: Final = _row("GET", "Microsoft.Compute/skus", _CATALOG)
USAGES: Final = _row("GET", "Microsoft.Compute/locations/usages", _CATALOG)

GET_VM: Final = _row("GET", VM, _MACHINES)
PUT_VM: Final = _row("PUT", VM, _MACHINES, costs=True)
DELETE_VM: Final = _row("DELETE", VM, _MACHINES)
RESTART_VM: Final = _row("POST", f"{VM}/restart", _MACHINES, right=f"{VM}/restart/action")
PATCH_VM: Final = _row("PATCH", VM, _VOLUMES)

GET_NIC: Final = _row("GET", NIC, _MACHINES)
PUT_NIC: Final = _row("PUT", NIC, _MACHINES)
DELETE_NIC: Final = _row("DELETE", NIC, _MACHINES)
GET_ADDRESS: Final = _row("GET", ADDRESS, _MACHINES)
PUT_ADDRESS: Final = _row("PUT", ADDRESS, _MACHINES, costs=True)
DELETE_ADDRESS: Final = _row("DELETE", ADDRESS, _MACHINES)
GET_GROUP: Final = _row("GET", GROUP, _MACHINES)
PUT_GROUP: Final = _row("PUT", GROUP, _MACHINES)
DELETE_GROUP: Final = _row("DELETE", GROUP, _MACHINES)
GET_NETWORK: Final = _row("GET", NETWORK, _MACHINES)
PUT_NETWORK: Final = _row("PUT", NETWORK, _MACHINES)
GET_DISK: Final = _row("GET", DISK, _MACHINES)
DELETE_DISK: Final = _row("DELETE", DISK, _MACHINES)
PUT_DISK: Final = _row("PUT", DISK, _VOLUMES, costs=True)
GET_SNAPSHOT: Final = _row("GET", SNAPSHOT, _SNAPSHOTS)
PUT_SNAPSHOT: Final = _row("PUT", SNAPSHOT, _SNAPSHOTS, costs=True)
DELETE_SNAPSHOT: Final = _row("DELETE", SNAPSHOT, _SNAPSHOTS)

CALLS: Final[tuple[contract.ApiCall, ...]] = (
    TOKEN,
    OPERATION,
    RESOURCE_GROUP,
    PERMISSIONS,
    REGISTRATION,
    LOCATIONS,
    SKUS,
    USAGES,
    GET_VM,
    PUT_VM,
    DELETE_VM,
    RESTART_VM,
    PATCH_VM,
    GET_NIC,
    PUT_NIC,
    DELETE_NIC,
    GET_ADDRESS,
    PUT_ADDRESS,
    DELETE_ADDRESS,
    GET_GROUP,
    PUT_GROUP,
    DELETE_GROUP,
    GET_NETWORK,
    PUT_NETWORK,
    GET_DISK,
    DELETE_DISK,
    PUT_DISK,
    GET_SNAPSHOT,
    PUT_SNAPSHOT,
    DELETE_SNAPSHOT,
)

GETS: Final[Mapping[str, contract.ApiCall]] = {
    VM: GET_VM,
    NIC: GET_NIC,
    ADDRESS: GET_ADDRESS,
    GROUP: GET_GROUP,
    NETWORK: GET_NETWORK,
    DISK: GET_DISK,
    SNAPSHOT: GET_SNAPSHOT,
}
DELETES: Final[Mapping[str, contract.ApiCall]] = {
    VM: DELETE_VM,
    NIC: DELETE_NIC,
    ADDRESS: DELETE_ADDRESS,
    GROUP: DELETE_GROUP,
    DISK: DELETE_DISK,
    SNAPSHOT: DELETE_SNAPSHOT,
}

WITH_IT: Final[Mapping[str, tuple[str, ...]]] = {
    PUT_NIC.name: (
        f"{NETWORK}/subnets/join/action",
        f"{ADDRESS}/join/action",
        f"{GROUP}/join/action",
    ),
    PUT_VM.name: (f"{NIC}/join/action", f"{DISK}/write"),
}
"""What a call also needs, on the things that its body names."""

OF_THE_SUBSCRIPTION: Final = frozenset({REGISTRATION.name, LOCATIONS.name, SKUS.name, USAGES.name})
"""Calls that a role on the resource group alone cannot grant: they need reading at the
subscription. Without them machines are made all the same; what cannot be known is said."""


def rights_of(
    features: Iterable[contract.Feature], *, of_the_subscription: bool
) -> tuple[str, ...]:
    """The rights that these features need, at the one scope or at the other, sorted."""
    wanted = set(features)
    rights: set[str] = set()
    for call in CALLS:
        if call.feature in wanted and (call.name in OF_THE_SUBSCRIPTION) == of_the_subscription:
            rights.update(WITH_IT.get(call.name, ()))
            if call.right is not None:
                rights.add(call.right)
    return tuple(sorted(rights))
