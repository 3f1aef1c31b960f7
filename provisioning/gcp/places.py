"""Where things are at Google: in a zone, in a region or in the whole project, by kind and name.

A reference is the part of Google's own link behind the project, `zones/Z/instances/NAME`; the
project is the connection's and never taken from what was stored or told.
"""

import dataclasses
import re
from typing import Final

from provisioning import catalogue, outcomes, providers

_PROJECT: Final = re.compile(r"[a-z0-9.:-]{1,100}")
_REF: Final = re.compile(
    r"(?P<scope>zones/[a-z0-9-]+|regions/[a-z0-9-]+|global)"
    r"/(?P<kind>instances|disks|snapshots|addresses|firewalls|operations)"
    r"/(?P<name>[a-z0-9](?:[a-z0-9-]{0,127}))"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A reference, taken apart."""

    scope: str  # `zones/us-central1-a`, `regions/us-central1`, `global`
    kind: str
    name: str

    @property
    def ref(self) -> str:
        """The reference again."""
        return f"{self.scope}/{self.kind}/{self.name}"

    @property
    def zone(self) -> str:
        """The zone; "" for what is in none."""
        return self.scope.removeprefix("zones/") if self.scope.startswith("zones/") else ""

    @property
    def region(self) -> str:
        """The region; "" for what is everywhere."""
        if self.zone:
            return region_of(self.zone)
        return self.scope.removeprefix("regions/") if self.scope != "global" else ""


def project_of(name: str) -> str:
    """The project, looked at first; raises `providers.Refused`."""
    if not _PROJECT.fullmatch(name):
        raise providers.Refused(f"{name!r} is no project's id.")
    return name


def spot_of(ref: str) -> Spot:
    """The reference, or Google's link, taken apart; raises `UnreadableRef` for anything else."""
    found = _REF.fullmatch(behind_project(ref))
    if found is None:
        raise outcomes.UnreadableRef(f"{ref!r} is no reference of a thing at Google.")
    return Spot(scope=found["scope"], kind=found["kind"], name=found["name"])


def machine_of(ref: str) -> Spot:
    """The reference of a machine; raises `UnreadableRef` for one of anything else."""
    spot = spot_of(ref)
    if spot.kind != "instances" or not spot.zone:
        raise outcomes.UnreadableRef(f"{ref!r} is no machine at Google.")
    return spot


def behind_project(link: str) -> str:
    """What stands behind the project in one of Google's links; a bare reference is itself."""
    _, mark, rest = link.partition("/projects/")
    return rest.partition("/")[2] if mark else link


def last(link: str) -> str:
    """The name at the end of a link."""
    return link.rpartition("/")[2]


def region_of(zone: str) -> str:
    """The region that a zone is in."""
    return zone.rpartition("-")[0]


def usual_zone(region: str) -> str | None:
    """The zone that is used in a tested region where the order names none."""
    known = catalogue.tested("gcp").region(region)
    return known.zone if known is not None else None
