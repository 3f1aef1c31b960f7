"""Every call that is made to UpCloud, and the permission of a sub-account that each needs.

The least-privilege text is made of this table, and a fake's ledger is compared with it.
"""

from typing import Final

from provisioning import contract

_FEATURE = contract.Feature
_Call = contract.ApiCall

_SERVERS: Final = "servers: list and manage"
_STORAGES: Final = "storages: list and manage"
_ADDRESSES: Final = "IP addresses: list and manage"

ACCOUNT: Final = _Call(name="GET /1.3/account", feature=_FEATURE.CHECK, right="account: read")
PLANS: Final = _Call(name="GET /1.3/plan", feature=_FEATURE.CATALOG)
ZONES: Final = _Call(name="GET /1.3/zone", feature=_FEATURE.CATALOG)
PRICES: Final = _Call(name="GET /1.3/price", feature=_FEATURE.CATALOG)
TEMPLATES: Final = _Call(
    name="GET /1.3/storage/template", feature=_FEATURE.CATALOG, right=_STORAGES
)

LIST: Final = _Call(name="GET /1.3/server", feature=_FEATURE.MACHINES, right=_SERVERS)
GET: Final = _Call(name="GET /1.3/server/{uuid}", feature=_FEATURE.MACHINES, right=_SERVERS)
CREATE: Final = _Call(
    name="POST /1.3/server", feature=_FEATURE.MACHINES, right=_SERVERS, changes=True, costs=True
)
STOP: Final = _Call(
    name="POST /1.3/server/{uuid}/stop", feature=_FEATURE.MACHINES, right=_SERVERS, changes=True
)
RESTART: Final = _Call(
    name="POST /1.3/server/{uuid}/restart",
    feature=_FEATURE.MACHINES,
    right=_SERVERS,
    changes=True,
)
DELETE: Final = _Call(
    name="DELETE /1.3/server/{uuid}", feature=_FEATURE.MACHINES, right=_SERVERS, changes=True
)
STORAGES: Final = _Call(name="GET /1.3/storage/private", feature=_FEATURE.MACHINES, right=_STORAGES)
STORAGE: Final = _Call(name="GET /1.3/storage/{uuid}", feature=_FEATURE.MACHINES, right=_STORAGES)
DELETE_STORAGE: Final = _Call(
    name="DELETE /1.3/storage/{uuid}", feature=_FEATURE.MACHINES, right=_STORAGES, changes=True
)

CREATE_STORAGE: Final = _Call(
    name="POST /1.3/storage",
    feature=_FEATURE.VOLUMES,
    right=_STORAGES,
    changes=True,
    costs=True,
)
ATTACH: Final = _Call(
    name="POST /1.3/server/{uuid}/storage/attach",
    feature=_FEATURE.VOLUMES,
    right=_SERVERS,
    changes=True,
)
DETACH: Final = _Call(
    name="POST /1.3/server/{uuid}/storage/detach",
    feature=_FEATURE.VOLUMES,
    right=_SERVERS,
    changes=True,
)
BACKUP: Final = _Call(
    name="POST /1.3/storage/{uuid}/backup",
    feature=_FEATURE.SNAPSHOTS,
    right=_STORAGES,
    changes=True,
    costs=True,
)

ADDRESSES: Final = _Call(name="GET /1.3/ip_address", feature=_FEATURE.ADDRESSES, right=_ADDRESSES)
ADDRESS: Final = _Call(
    name="GET /1.3/ip_address/{address}", feature=_FEATURE.ADDRESSES, right=_ADDRESSES
)
CREATE_ADDRESS: Final = _Call(
    name="POST /1.3/ip_address",
    feature=_FEATURE.ADDRESSES,
    right=_ADDRESSES,
    changes=True,
    costs=True,
)
MOVE_ADDRESS: Final = _Call(
    name="PATCH /1.3/ip_address/{address}",
    feature=_FEATURE.ADDRESSES,
    right=_ADDRESSES,
    changes=True,
)
DELETE_ADDRESS: Final = _Call(
    name="DELETE /1.3/ip_address/{address}",
    feature=_FEATURE.ADDRESSES,
    right=_ADDRESSES,
    changes=True,
)

ALL: Final = tuple(one for one in dict(globals()).values() if isinstance(one, _Call))
"""In the order of this file."""
