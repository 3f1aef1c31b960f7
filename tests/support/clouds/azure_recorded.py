"""Recorded sessions of the real Azure, and a referee that holds the fake to what they show.

Every field that the fake answers must stand in a recorded answer about the same kind of thing, with
a value of the same type, or in the short list of what Azure has added since the sessions were
recorded; what every recorded answer has, the fake must have too.

Known limit: the sessions are of 2017 and 2020 and hold no deletes of single things and no refusals.
"""

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tests.support.clouds import recorded_shapes as shapes
from tests.support.clouds import recordings, referee, server

_KIND: Final = re.compile(r"/providers/(Microsoft\.\w+/\w+)/[^/]+$")
_OPERATION: Final = re.compile(r"/operations/[^/]+$")
_SINCE: Final = frozenset(
    {
        # deleteOption and timeCreated came with Microsoft.Compute 2021-03-01 and -11-01, the flag
        # of addresses with Microsoft.Network 2021-03-01
        "properties.deleteOption",
        "properties.timeCreated",
        "properties.networkProfile.networkInterfaces[].properties.deleteOption",
        "properties.storageProfile.osDisk.deleteOption",
        "properties.ipConfigurations[].properties.publicIPAddress.properties.deleteOption",
        # sent by us and answered as sent
        "tags",
        "properties.networkSecurityGroup.id",
        "properties.securityRules[].properties.description",
        "properties.securityRules[].properties.sourceAddressPrefixes[]",
        "properties.storageProfile.osDisk.managedDisk.id",
        "properties.addressSpace.addressPrefixes[]",
        "properties.subnets[].name",
        "properties.subnets[].properties.addressPrefix",
        # no recorded machine has a volume
        "properties.storageProfile.dataDisks[]",
        # asked for with $expand; recorded under an older version of the interface
        "properties.instanceView",
        # an operation that has failed; no session recorded one
        "error.code",
        "error.message",
    }
)


@functools.cache
def sessions() -> tuple[Mapping[str, Any], ...]:
    """All recorded exchanges; skips the test where there are none."""
    found = []
    for path in sorted((recordings.folder() / "azure-session-records").glob("*.json")):
        found += json.loads(path.read_text(encoding="utf-8"))["networkCallRecords"]
    return tuple(found)


def bodies(kind: str) -> list[dict[str, Any]]:
    """The recorded answers about things of this kind; `operation` for operations."""
    found = []
    for one in sessions():
        text = one["Response"].get("Body")
        if text and kind_of(one["Uri"].partition("?")[0]) == kind:
            found.append(json.loads(text))
    return found


def kind_of(path: str) -> str:
    """The kind of thing that a path names; "" for lists and other things."""
    if _OPERATION.search(path):
        return "operation"
    found = _KIND.search(path)
    return found[1] if found is not None else ""


def is_here() -> bool:
    """Whether there are recordings."""
    return (referee.folder() / "azure-session-records").is_dir()


class Referee:
    """Holds every answer about one thing to the recorded ones."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.checked = 0

    def check(self, asked: server.Asked, reply: server.Reply, *, address: str) -> None:
        """Writes down what no recorded answer shows."""
        del address
        kind = kind_of(asked.path)
        if not kind or reply.status not in {200, 201} or not _known(kind):
            return
        if asked.method == "DELETE" or not isinstance(reply.document, dict):
            return
        self.checked += 1
        found = shapes.strangers(reply.document, _known(kind), allowed=_SINCE)
        self.faults += [f"{kind}: {one}" for one in found]
        answered, always = dict(shapes.leaves(reply.document)), _always(kind)
        self.faults += [f"{kind}: {one} is missing" for one in always if one not in answered]


@functools.cache
def _known(kind: str) -> shapes.Shape:
    return shapes.known(bodies(kind))


@functools.cache
def _always(kind: str) -> frozenset[str]:
    """What every recorded answer has, of what the driver could read."""
    told = [frozenset(field for field, _ in shapes.leaves(body)) for body in bodies(kind)]
    common = frozenset.intersection(*told) if told else frozenset()
    top = {"id", "name", "type", "location", "etag", "status", "properties.provisioningState"}
    return common & (top | {"properties.vmId", "properties.hardwareProfile.vmSize"})
