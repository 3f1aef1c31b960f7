"""What stands in the fake Azure's resource group, and how its errors are raised."""

import dataclasses
import datetime
from typing import Any, Final

from tests.support.clouds import script as script_kit

SUBSCRIPTION: Final = "6a1c6a5e-0000-4000-8000-00000000c10d"
RESOURCE_GROUP: Final = "enlist-machines"
PATH: Final = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"

VM: Final = "Microsoft.Compute/virtualMachines"
DISK: Final = "Microsoft.Compute/disks"
SNAPSHOT: Final = "Microsoft.Compute/snapshots"
NIC: Final = "Microsoft.Network/networkInterfaces"
ADDRESS: Final = "Microsoft.Network/publicIPAddresses"
GROUP: Final = "Microsoft.Network/networkSecurityGroups"
NETWORK: Final = "Microsoft.Network/virtualNetworks"


@dataclasses.dataclass(slots=True, kw_only=True)
class Resource:
    """One thing in the group. `due`: when what is under way with it is over."""

    kind: str
    name: str
    body: dict[str, Any]
    born: datetime.datetime
    power: str = ""
    operation: str | None = None
    due: datetime.datetime | None = None
    fails: script_kit.Armed | None = None
    is_dying: bool = False
    is_along: bool = False  # goes because its machine goes
    reserved_until: datetime.datetime | None = None

    @property
    def ref(self) -> str:
        """Its id."""
        return f"{PATH}/providers/{self.kind}/{self.name}"

    @property
    def state(self) -> str:
        """What is called its provisioning state."""
        return str(self.body["properties"].get("provisioningState", ""))

    @state.setter
    def state(self, word: str) -> None:
        self.body["properties"]["provisioningState"] = word


class Refused(Exception):
    """The answer is an error of this code."""

    def __init__(self, code: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
