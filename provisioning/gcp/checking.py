"""What can be known of a connection to Google: its permissions, its offer, how much is left.

Google tells which of a list of permissions are held, and that question needs none itself. A service
that is switched off, and quota, are asked for apart.

Known limit: organisation policies show only when something is made.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from provisioning import catalogue, contract, outcomes
from provisioning.gcp import api as api_kit
from provisioning.gcp import calls, places, reading
from runtime_kit import clock as clock_kit

_MIB: Final = 2**20
_USUAL_DISK: Final = 20 * 10**9
_MACHINES: Final = {"X86_64": "x86_64", "ARM64": "aarch64"}
_CANNOT_NEST: Final = ("e2-", "n2d-", "t2", "f1-", "g1-", "c4a-")
"""Families without nested virtualisation (E2, AMD and Arm, as documented)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Checking:
    """Asks, and makes nothing."""

    api: api_kit.Api
    clock: clock_kit.Clock
    principal: str
    details: Mapping[str, Any]

    async def validate(self) -> contract.Validation:
        """Who we are here and what is missing."""
        self.api.prove_anew()  # a token that is held proves nothing of the credential now
        needed = calls.rights_of(contract.Feature)
        held = await self.api.held_rights(needed)
        missing = tuple(right for right in needed if right not in held)
        warnings: list[str] = []
        try:
            state = await self.api.service_state()
            if state != "ENABLED":
                warnings.append(
                    f"Compute Engine is {state or 'not enabled'} in {self.api.project}: "
                    f"gcloud services enable compute.googleapis.com --project {self.api.project}"
                )
        except outcomes.Fault as fault:
            if fault.topic is not outcomes.Topic.RIGHTS:
                raise
        tested = catalogue.tested("gcp")
        room = None
        if "compute.regions.get" in held and not warnings:
            left = await quota_left(self.api, tested.regions[0].name)
            room = _room(left, cores=tested.tiers[0].size.cores)
        return contract.Validation(
            account=self.api.project,
            principal=self.principal,
            missing=missing,
            unproved=("organisation policies",),
            room=room,
            warnings=tuple(warnings),
            details=dict(self.details),
        )

    async def offer(self) -> contract.Offer:
        """Zones that are up and the sizes in them."""
        tested = catalogue.tested("gcp")
        zones = await self.api.all_of(calls.ZONES, "zones")
        up = {reading.text(one, "name") for one in zones if reading.text(one, "status") == "UP"}
        listed = await self.api.aggregated(calls.SIZES, kind="machineTypes")
        sizes: dict[str, contract.Size] = {}
        for row in listed.rows:
            zone = reading.text(row, "zone")
            if zone in up:
                _add(sizes, row, region=places.region_of(zone), tested=tested)
        return contract.Offer(
            regions=tuple(sorted({places.region_of(zone) for zone in up})),
            sizes=tuple(sizes.values()),
            images=tested.images,
            address_price=tested.address_price,
            told_at=self.clock.now(),
        )


async def quota_left(api: api_kit.Api, region: str) -> Mapping[str, float] | None:
    """How much of each quota is left in a region; None where there is no such region."""
    told = await api.get(calls.REGION, f"regions/{region}")
    if told is None:
        return None
    return {
        reading.text(one, "metric"): float(one["limit"]) - float(one["usage"])
        for one in reading.objects(told, "quotas")
        if isinstance(one.get("limit"), int | float) and isinstance(one.get("usage"), int | float)
    }


def _add(
    sizes: dict[str, contract.Size],
    row: reading.Body,
    *,
    region: str,
    tested: catalogue.Catalogue,
) -> None:
    name = reading.text(row, "name")
    known = sizes.get(name)
    if known is not None:
        if region not in known.regions:
            sizes[name] = dataclasses.replace(known, regions=(*known.regions, region))
        return
    tier = tested.tier(name)
    state = row.get("deprecated")
    withdrawn = isinstance(state, dict) and state.get("state") in {"OBSOLETE", "DELETED"}
    architecture = reading.text(row, "architecture") or "X86_64"
    sizes[name] = contract.Size(
        name=name,
        cores=int(row.get("guestCpus", 0)),
        memory_bytes=math.floor(float(row.get("memoryMb", 0)) * _MIB),
        disk_bytes=tier.size.disk_bytes if tier is not None else _USUAL_DISK,
        architecture=_MACHINES.get(architecture, architecture),
        regions=(region,),
        prices=tier.size.prices if tier is not None else {},
        nested_virt=not name.startswith(_CANNOT_NEST),
        withdrawn=withdrawn,
    )


def _room(left: Mapping[str, float] | None, *, cores: int) -> int | None:
    needs = (("CPUS", cores), ("INSTANCES", 1), ("IN_USE_ADDRESSES", 1))
    if left is None:
        return None
    return min(
        (max(0, int(left[name] // one)) for name, one in needs if name in left), default=None
    )
