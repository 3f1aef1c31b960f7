"""Where things are in Azure: the address of each by its kind and name, and back.

Everything of ours lives in one resource group of one subscription. A reference that is not in it is
refused before a call is made, so nothing stored, told or mistyped leads elsewhere.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from provisioning import contract, naming, outcomes, providers
from provisioning.azure import calls

_SUBSCRIPTION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_GROUP: Final = re.compile(r"[\w().-]{1,90}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_REF: Final = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/(?P<kind>[^/]+/[^/]+)/(?P<name>[^/]+)",
    re.IGNORECASE,
)

VERSIONS: Final[Mapping[str, str]] = {
    calls.VM: "2024-07-01",
    calls.DISK: "2024-03-02",
    calls.SNAPSHOT: "2024-03-02",
    calls.NIC: "2024-05-01",
    calls.ADDRESS: "2024-05-01",
    calls.GROUP: "2024-05-01",
    calls.NETWORK: "2024-05-01",
}

KINDS: Final[Mapping[str, contract.ChildKind]] = {
    calls.DISK: contract.ChildKind.DISK,
    calls.SNAPSHOT: contract.ChildKind.SNAPSHOT,
    calls.ADDRESS: contract.ChildKind.ADDRESS,
    calls.NIC: contract.ChildKind.INTERFACE,
    calls.GROUP: contract.ChildKind.SECURITY_GROUP,
}

BESIDE: Final[Mapping[contract.ChildKind, str]] = {
    contract.ChildKind.DISK: calls.DISK,
    contract.ChildKind.VOLUME: calls.DISK,
    contract.ChildKind.SNAPSHOT: calls.SNAPSHOT,
    contract.ChildKind.ADDRESS: calls.ADDRESS,
    contract.ChildKind.INTERFACE: calls.NIC,
    contract.ChildKind.SECURITY_GROUP: calls.GROUP,
}

CHAIN: Final[Mapping[contract.ChildKind, str]] = {
    contract.ChildKind.SECURITY_GROUP: calls.GROUP,
    contract.ChildKind.ADDRESS: calls.ADDRESS,
    contract.ChildKind.INTERFACE: calls.NIC,
    contract.ChildKind.DISK: calls.DISK,
}
"""What a machine is made with, in the order of making; the disk is made with the machine."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The resource group that everything is in."""

    subscription: str
    group: str

    @classmethod
    def checked(cls, *, subscription: str, group: str) -> "Place":
        """The same, looked at first; raises `providers.Refused`."""
        if not _SUBSCRIPTION.fullmatch(subscription):
            raise providers.Refused(f"{subscription!r} is no subscription's id.")
        if not _GROUP.fullmatch(group) or group.endswith("."):
            raise providers.Refused(f"{group!r} is no resource group's name.")
        return cls(subscription=subscription, group=group)

    @property
    def of_subscription(self) -> str:
        """The path of the subscription."""
        return f"/subscriptions/{self.subscription}"

    @property
    def path(self) -> str:
        """The path of the resource group."""
        return f"{self.of_subscription}/resourceGroups/{self.group}"

    def all_of(self, kind: str) -> str:
        """The path under which all of this kind stand."""
        return f"{self.path}/providers/{kind}"

    def one(self, kind: str, name: str) -> str:
        """The path of one; raises `UnreadableRef` for what is no name."""
        if not _NAME.fullmatch(name):
            raise outcomes.UnreadableRef(f"{name!r} is no name of a resource.")
        return f"{self.all_of(kind)}/{name}"

    def child(self, owner: contract.Owner, kind: contract.ChildKind) -> str:
        """The path of what hangs on this attempt's machine."""
        return self.one(CHAIN[kind], naming.child_name(owner, kind))

    def parts(self, ref: str) -> tuple[str, str]:
        """Kind and name behind a reference of ours; Azure itself changes case now and then.

        Raises:
            outcomes.UnreadableRef: it is none, or it is not in this resource group.
        """
        found = _REF.fullmatch(ref)
        if found is None:
            raise outcomes.UnreadableRef(f"{ref!r} is no reference of a resource.")
        here = (self.subscription.lower(), self.group.lower())
        if (found["subscription"].lower(), found["group"].lower()) != here:
            raise outcomes.UnreadableRef(f"{ref!r} is not in the resource group {self.group}.")
        for kind in VERSIONS:
            if kind.lower() == found["kind"].lower():
                return kind, found["name"]
        raise outcomes.UnreadableRef(f"{ref!r} is of a kind that is not used here.")

    def same(self, ref: str, *, of: str | None = None) -> str:
        """The reference as we write it, so that two of one thing compare equal.

        Raises `UnreadableRef` where it is of another kind than `of`, and as `parts` does.
        """
        kind, name = self.parts(ref)
        if of is not None and kind != of:
            raise outcomes.UnreadableRef(f"{ref!r} is not of the kind {of}.")
        return self.one(kind, name)
