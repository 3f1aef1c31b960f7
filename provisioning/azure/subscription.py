"""What can only be read at the subscription: sizes, quota, regions, and what is switched on.

A role on the resource group does not reach here. Each question therefore either answers or notes
the right that it lacks, and nobody stops for it.
"""

import dataclasses
import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, TypeVar

from provisioning import contract, outcomes
from provisioning.azure import arm as arm_kit
from provisioning.azure import calls, places, reading

_SKUS: Final = "2021-07-01"
_SUBSCRIPTIONS: Final = "2022-12-01"
_PROVIDERS: Final = "2022-09-01"
_MACHINES: Final = {"x64": "x86_64", "Arm64": "aarch64"}

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    """Asks at the subscription. `unreadable` collects the rights that were missing."""

    arm: arm_kit.Arm
    place: places.Place
    unreadable: dict[str, None] = dataclasses.field(default_factory=dict)

    async def registration(self, namespace: str) -> str | None:
        """A sentence where this kind of thing is switched off in the subscription; else ""."""
        path = f"{self.place.of_subscription}/providers/{namespace}"
        answer = await self._tried(
            calls.REGISTRATION, self.arm.send(calls.REGISTRATION, path, version=_PROVIDERS)
        )
        if answer is None:
            return None
        state = reading.text(answer.body or {}, "registrationState")
        if state == "Registered":
            return ""
        return (
            f"{namespace} is {state or 'not registered'} in this subscription: "
            f"az provider register --namespace {namespace}"
        )

    async def locations(self) -> frozenset[str] | None:
        """The names of its regions."""
        path = f"{self.place.of_subscription}/locations"
        rows = await self._tried(
            calls.LOCATIONS, self.arm.pages(calls.LOCATIONS, path, version=_SUBSCRIPTIONS)
        )
        return None if rows is None else frozenset(reading.text(row, "name") for row in rows)

    async def sizes(self, region: str) -> list[arm_kit.Body] | None:
        """The sizes of machines in a region, the restricted ones too."""
        rows = await self._tried(
            calls.SKUS,
            self.arm.pages(
                calls.SKUS,
                f"{self.place.of_subscription}/providers/Microsoft.Compute/skus",
                version=_SKUS,
                params={"$filter": f"location eq '{_plain(region)}'"},
            ),
        )
        if rows is None:
            return None
        return [row for row in rows if row.get("resourceType") == "virtualMachines"]

    async def left(self, region: str) -> Mapping[str, int] | None:
        """How many more of each quota are allowed in a region."""
        path = f"{self.place.of_subscription}/providers/Microsoft.Compute/locations"
        rows = await self._tried(
            calls.USAGES,
            self.arm.pages(
                calls.USAGES,
                f"{path}/{_plain(region)}/usages",
                version=places.VERSIONS[calls.VM],
            ),
        )
        if rows is None:
            return None
        left = {}
        for row in rows:
            limit, used = row.get("limit"), row.get("currentValue")
            if isinstance(limit, int) and isinstance(used, int):
                left[reading.text(reading.inside(row, "name"), "value")] = max(0, limit - used)
        return left

    async def _tried(self, call: contract.ApiCall, asked: Awaitable[T]) -> T | None:
        try:
            return await asked
        except outcomes.Fault as fault:
            if fault.topic is not outcomes.Topic.RIGHTS:
                raise
            self.unreadable[call.right or call.name] = None
            return None


def row_of(size: str, rows: Iterable[reading.Body]) -> reading.Body | None:
    """The row of this size."""
    return next((one for one in rows if reading.text(one, "name") == size), None)


def is_restricted(row: reading.Body) -> bool:
    """Whether this subscription cannot have it in the region that was asked about."""
    return any(reading.text(one, "type") == "Location" for one in reading.rows(row, "restrictions"))


def number(row: reading.Body, name: str) -> float:
    """A capability that is a number; 0 where it is not told."""
    try:
        return float(_capability(row, name))
    except ValueError:
        return 0.0


def architecture(row: reading.Body) -> str:
    """As `uname -m` says it."""
    told = _capability(row, "CpuArchitectureType") or "x64"
    return _MACHINES.get(told, told)


def _capability(row: reading.Body, name: str) -> str:
    for one in reading.rows(row, "capabilities"):
        if reading.text(one, "name") == name:
            return reading.text(one, "value")
    return ""


def _plain(region: str) -> str:
    """The region as a part of a filter or path; only lower-case letters and digits ever are."""
    return re.sub(r"[^a-z0-9]", "", region)
