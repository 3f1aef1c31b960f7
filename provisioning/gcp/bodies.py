"""What is sent to Google to make a machine and what hangs on it: one plain object each.

The same request always makes the same bodies, so the same request id may be sent again. First-boot
data goes as it is into the metadata key `user-data`, which cloud-init reads. Images without
cloud-init get a start-up script beside it; Google runs that at every boot, so it looks first
whether it has anything to do.

No service account is given to a machine, so nothing on it can call Google in our name.
"""

import json
import re
import uuid
from typing import Any, Final

from provisioning import contract, naming
from provisioning.gcp import places

USER: Final = "enlist"
DISK_TYPE: Final = "pd-balanced"
LONGEST_NAME: Final = 63
WITHOUT_CLOUD_INIT: Final = frozenset(
    {"debian-cloud", "centos-cloud", "rhel-cloud", "rocky-linux-cloud"}
)
"""Projects of images that read no `user-data`."""
_NETWORK: Final = "default"
_PART: Final = re.compile(r"[a-z0-9][a-z0-9.:-]{0,99}")

STARTUP: Final = """#!/bin/sh
# Runs at every boot. The image has no cloud-init: this brings it, once, and lets it read user-data.
set -eu
done=/var/lib/enlist-first-boot-started
[ -e "$done" ] && exit 0
if ! command -v cloud-init >/dev/null; then
    if command -v apt-get >/dev/null; then
        apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install cloud-init
    else
        dnf -q -y install cloud-init
    fi
    cloud-init clean
    cloud-init init --local
    cloud-init init
    cloud-init modules --mode=config
    cloud-init modules --mode=final
fi
touch "$done"
"""

Body = dict[str, Any]


def request_id(token: str) -> str:
    """The UUID by which Google knows the same order again."""
    return str(uuid.UUID(hex=token[:32], version=4))


def instance(request: contract.Request, *, zone: str, addresses: tuple[str, ...]) -> Body:
    """The machine; its disk is flagged to go with it. `addresses` are stable ones by number."""
    labels = dict(naming.tags_of(request.owner))
    body: Body = {
        "name": request.name,
        "machineType": f"zones/{zone}/machineTypes/{request.size}",
        "labels": labels,
        "disks": [_boot_disk(request, zone=zone, labels=labels)],
        "networkInterfaces": [_interface(request, addresses=addresses)],
        "metadata": {"items": _metadata(request)},
        "serviceAccounts": [],
    }
    body["disks"] += [
        {"source": ref, "autoDelete": False, "boot": False, "deviceName": places.last(ref)}
        for ref in request.volumes
    ]
    if request.ssh is not None:
        body["tags"] = {"items": [request.name]}
    return body


def image(wanted: str, *, project: str) -> Body:
    """The source of a boot disk: a family of images, one image, or one of our snapshots.

    Raises:
        ValueError: it is none of these.
    """
    if wanted.startswith("global/snapshots/"):
        places.spot_of(wanted)
        return {"sourceSnapshot": f"projects/{project}/{wanted}"}
    parts = wanted.split("/")
    if len(parts) == 2 and all(_PART.fullmatch(one) for one in parts):
        return {"sourceImage": f"projects/{parts[0]}/global/images/family/{parts[1]}"}
    is_full = len(parts) in {5, 6} and parts[0] == "projects" and parts[2:4] == ["global", "images"]
    if is_full and all(_PART.fullmatch(one) for one in parts[1:]):
        return {"sourceImage": wanted}
    raise ValueError(
        f"{wanted!r} is no image of Google: give PROJECT/FAMILY, "
        "projects/PROJECT/global/images/IMAGE, or one of your snapshots, global/snapshots/NAME."
    )


def image_project(wanted: str) -> str:
    """The project that an image is from; "" for a snapshot."""
    parts = wanted.split("/")
    if wanted.startswith("global/"):
        return ""
    return parts[1] if parts[0] == "projects" and len(parts) > 1 else parts[0]


def network(request: contract.Request) -> Body:
    """Where the machine's card is; the project's `default` network if none is named."""
    if request.subnet is not None:
        region = request.region
        return {"subnetwork": f"regions/{region}/subnetworks/{request.subnet}"}
    return {"network": f"global/networks/{request.network or _NETWORK}"}


def rule(request: contract.Request, *, name: str, sources: tuple[str, ...]) -> Body:
    """SSH from where it was asked for, to this machine alone. Rules carry no labels at Google."""
    return {
        "name": name,
        "network": f"global/networks/{request.network or _NETWORK}",
        "description": json.dumps(dict(naming.tags_of(request.owner)), sort_keys=True),
        "direction": "INGRESS",
        "priority": 900,
        "sourceRanges": list(sources),
        "targetTags": [request.name],
        "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
    }


def disk(owner: contract.Owner, *, name: str, zone: str, size_gigabytes: int) -> Body:
    """An empty volume."""
    return {
        "name": name,
        "labels": dict(naming.tags_of(owner)),
        "sizeGb": str(size_gigabytes),
        "type": f"zones/{zone}/diskTypes/{DISK_TYPE}",
    }


def snapshot(owner: contract.Owner, *, name: str) -> Body:
    """A copy of a disk as it is now."""
    return {"name": name, "labels": dict(naming.tags_of(owner))}


def address(owner: contract.Owner, *, name: str) -> Body:
    """A public IPv4 that stays."""
    return {"name": name, "labels": dict(naming.tags_of(owner)), "addressType": "EXTERNAL"}


def access(*, address: str | None) -> Body:
    """How a card is reached from outside: by this stable address, or by any."""
    body = {"type": "ONE_TO_ONE_NAT", "name": "External NAT"}
    return body if address is None else {**body, "natIP": address}


def _boot_disk(request: contract.Request, *, zone: str, labels: Body) -> Body:
    made: Body = {
        "diskName": naming.child_name(request.owner, contract.ChildKind.DISK),
        "diskType": f"zones/{zone}/diskTypes/{DISK_TYPE}",
        "labels": labels,
    }
    if request.disk_gigabytes is not None:
        made["diskSizeGb"] = str(request.disk_gigabytes)
    return {"boot": True, "autoDelete": True, "initializeParams": made}


def _interface(request: contract.Request, *, addresses: tuple[str, ...]) -> Body:
    card = network(request)
    if request.public_ipv4 or addresses:
        card["accessConfigs"] = [access(address=addresses[0] if addresses else None)]
    return card


def _metadata(request: contract.Request) -> list[Body]:
    has_none = image_project(request.image) in WITHOUT_CLOUD_INIT
    if has_none and request.first_boot.startswith("#!"):
        items = [{"key": "startup-script", "value": request.first_boot}]
    else:
        items = [{"key": "user-data", "value": request.first_boot}]
        if has_none:
            items.append({"key": "startup-script", "value": STARTUP})
    items.append({"key": "block-project-ssh-keys", "value": "TRUE"})
    if request.ssh is not None:
        items.append({"key": "ssh-keys", "value": f"{USER}:{request.ssh.public_key}"})
    return items
