"""What a subscription tells of itself: regions, sizes, quota, what is switched on.

A role on the resource group does not reach here: `readable` are the rights that are granted at the
subscription, `*` all of them.
"""

import re
from typing import Any, Final

from tests.support.clouds import server

SIZES: Final = {
    "Standard_B2s": (2, 4, "standardBSFamily"),
    "Standard_B2ms": (2, 8, "standardBSFamily"),
    "Standard_A4_v2": (4, 8, "standardAv2Family"),
    "Standard_D4s_v5": (4, 16, "standardDSv5Family"),
}
REGIONS: Final = ("eastus", "westeurope", "southafricanorth", "northeurope")
_ROUTES: Final = (
    (r"/subscriptions/[\w-]+/locations", "locations"),
    (r"/subscriptions/[\w-]+/providers/Microsoft\.Compute/skus", "Microsoft.Compute/skus"),
    (
        r"/subscriptions/[\w-]+/providers/Microsoft\.Compute/locations/(\w+)/usages",
        "Microsoft.Compute/locations/usages",
    ),
    (r"/subscriptions/[\w-]+/providers/(Microsoft\.\w+)", "providers"),
)
_RIGHTS: Final = {
    "locations": "Microsoft.Resources/subscriptions/locations/read",
    "Microsoft.Compute/skus": "Microsoft.Compute/skus/read",
    "Microsoft.Compute/locations/usages": "Microsoft.Compute/locations/usages/read",
    "providers": "Microsoft.Resources/subscriptions/providers/read",
}


class Subscription:
    """Answers what is asked at the subscription."""

    def __init__(self) -> None:
        self.readable: set[str] = {"*"}
        self.registered = {"Microsoft.Compute": "Registered", "Microsoft.Network": "Registered"}
        self.restricted: set[tuple[str, str]] = set()  # size, region
        self.withdrawn: set[str] = set()
        self.cores = 1_000  # the limit, per region
        self.cores_used: dict[str, int] = {}
        self.machines_used: dict[str, int] = {}

    def name_of(self, asked: server.Asked) -> str:
        """The call's name in the driver's table; "" for no route."""
        for pattern, name in _ROUTES:
            if re.fullmatch(pattern, asked.path):
                return f"{asked.method} {name}"
        return ""

    def answer(self, asked: server.Asked, *, refused: type[Exception]) -> server.Reply:
        """Does the work."""
        for pattern, name in _ROUTES:
            found = re.fullmatch(pattern, asked.path)
            if found is None or asked.method != "GET":
                continue
            if not {"*", _RIGHTS[name]} & self.readable:
                words = f"No authorization to perform action '{_RIGHTS[name]}' over the scope."
                raise refused("AuthorizationFailed", words)
            return server.Reply(document=self._document(name, found, asked))
        group = re.fullmatch(r"/subscriptions/[\w-]+/resourceGroups/([^/]+)(/.*)?", asked.path)
        if group is not None:
            words = f"Resource group '{group[1]}' could not be found."
            raise refused("ResourceGroupNotFound", words)
        raise refused("NotFound", "There is no such route.")

    def _document(self, name: str, found: re.Match[str], asked: server.Asked) -> dict[str, Any]:
        if name == "providers":
            space = found[1]
            state = self.registered.get(space, "NotRegistered")
            return {"namespace": space, "registrationState": state}
        if name == "locations":
            rows: list[Any] = [{"name": one, "displayName": one.title()} for one in REGIONS]
        elif name == "Microsoft.Compute/skus":
            region = re.fullmatch(r"location eq '(\w+)'", asked.first("$filter"))
            rows = self._skus(region[1] if region is not None else "")
        else:
            rows = self._usages(found[1])
        return {"value": rows}

    def _skus(self, region: str) -> list[Any]:
        rows: list[Any] = [{"resourceType": "disks", "name": "StandardSSD_LRS"}]
        for name, (cores, memory, family) in SIZES.items():
            if region not in REGIONS or name in self.withdrawn:
                continue
            limits = [{"type": "Location", "values": [region],
                       "reasonCode": "NotAvailableForSubscription"}]  # fmt: skip
            rows.append(
                {
                    "resourceType": "virtualMachines",
                    "name": name,
                    "family": family,
                    "locations": [region],
                    "capabilities": [
                        {"name": "vCPUs", "value": str(cores)},
                        {"name": "MemoryGB", "value": str(memory)},
                        {"name": "CpuArchitectureType", "value": "x64"},
                    ],
                    "restrictions": limits if (name, region) in self.restricted else [],
                }
            )
        return rows

    def _usages(self, region: str) -> list[Any]:
        told = (
            ("cores", self.cores, self.cores_used.get(region, 0)),
            ("virtualMachines", 25_000, self.machines_used.get(region, 0)),
        )
        return [
            {"unit": "Count", "limit": limit, "currentValue": used, "name": {"value": name}}
            for name, limit, used in told
        ]
