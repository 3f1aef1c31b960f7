"""What is sent to Azure to make a machine and what hangs on it: one plain object each.

The same request always makes the same bodies but for one thing: without a person's key the machine
gets one whose private half is thrown away unseen. Azure takes no Linux machine without a key or a
password, and a key that nobody has leaves, unlike a password, nothing that could be guessed, stored
or shown, and the machine's sshd refuses passwords.

First-boot data goes into `customData`, in base64 once; `userData` would stay readable on the
machine for good.
"""

import base64
import datetime
import hashlib
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from provisioning import contract, naming
from provisioning.azure import places

LONGEST_NAME: Final = 64
USER: Final = "enlist"
DISK_TYPE: Final = "StandardSSD_LRS"
NETWORK_PREFIX: Final = "10.83.0.0/16"
SUBNET: Final = "machines"
_DELETE: Final = {"deleteOption": "Delete"}
_BITS: Final = 2048  # nobody holds the private half; more bits would only cost time

Body = dict[str, Any]


def network_name(owner: contract.Owner, *, region: str) -> str:
    """The network that all machines of an installation share in a region, if none is named."""
    mark = hashlib.sha256(owner.installation.encode()).hexdigest()[:10]
    return f"enlist-{region}-{mark}"


def network(owner: contract.Owner, *, region: str) -> Body:
    """That network: it costs nothing, has no way in, and outlives its machines."""
    return {
        "location": region,
        "tags": {naming.INSTALLATION: owner.installation, naming.INFRA: owner.infra},
        "properties": {
            "addressSpace": {"addressPrefixes": [NETWORK_PREFIX]},
            "subnets": [{"name": SUBNET, "properties": {"addressPrefix": NETWORK_PREFIX}}],
        },
    }


def security_group(request: contract.Request) -> Body:
    """One for each machine: nothing from outside comes in but SSH from where it was asked for."""
    rules: list[Body] = []
    if request.ssh is not None and request.ssh.sources:
        rules.append(
            {
                "name": "ssh",
                "properties": {
                    "description": _until(request.ssh.until),
                    "protocol": "Tcp",
                    "sourcePortRange": "*",
                    "destinationPortRange": "22",
                    "sourceAddressPrefixes": list(request.ssh.sources),
                    "destinationAddressPrefix": "*",
                    "access": "Allow",
                    "priority": 100,
                    "direction": "Inbound",
                },
            }
        )
    return _tagged(request.owner, region=request.region, properties={"securityRules": rules})


def address(owner: contract.Owner, *, region: str) -> Body:
    """A public IPv4 that goes with its machine; the standard kind lets nothing in by itself."""
    body = stable_address(owner, region=region)
    body["properties"].update(_DELETE)
    return body


def stable_address(owner: contract.Owner, *, region: str) -> Body:
    """A public IPv4 that stays."""
    return {
        **_tagged(
            owner,
            region=region,
            properties={
                "publicIPAllocationMethod": "Static",
                "publicIPAddressVersion": "IPv4",
            },
        ),
        "sku": {"name": "Standard"},
    }


def interface(
    request: contract.Request,
    *,
    subnet: str,
    group: str,
    public_address: str | None,
    stays: bool = False,
) -> Body:
    """The network card; its public address goes when the machine goes, unless it `stays`."""
    inside: Body = {"subnet": {"id": subnet}, "primary": True, "privateIPAddressVersion": "IPv4"}
    if public_address is not None:
        inside["publicIPAddress"] = {
            "id": public_address,
            "properties": {"deleteOption": "Detach"} if stays else dict(_DELETE),
        }
    return _tagged(
        request.owner,
        region=request.region,
        properties={
            "networkSecurityGroup": {"id": group},
            "ipConfigurations": [{"name": "primary", "properties": inside}],
        },
    )


def machine(request: contract.Request, *, place: places.Place, interface_id: str) -> Body:
    """The machine itself; its disk and its network card are flagged to go with it."""
    disk: Body = {
        "name": naming.child_name(request.owner, contract.ChildKind.DISK),
        "createOption": "FromImage",
        "managedDisk": {"storageAccountType": DISK_TYPE},
        **_DELETE,
    }
    if request.disk_gigabytes is not None:
        disk["diskSizeGB"] = request.disk_gigabytes
    card: Body = {"id": interface_id, "properties": {"primary": True, **_DELETE}}
    key = request.ssh.public_key if request.ssh is not None else _key_of_nobody()
    body = _tagged(
        request.owner,
        region=request.region,
        properties={
            "hardwareProfile": {"vmSize": request.size},
            "storageProfile": {
                "imageReference": image(request.image),
                "osDisk": disk,
                "dataDisks": [
                    {
                        "lun": lun,
                        "createOption": "Attach",
                        "deleteOption": "Detach",
                        "managedDisk": {"id": place.same(ref)},
                    }
                    for lun, ref in enumerate(request.volumes)
                ],
            },
            "osProfile": {
                "computerName": request.name,
                "adminUsername": USER,
                "customData": base64.b64encode(request.first_boot.encode("ascii")).decode(),
                "linuxConfiguration": {
                    "disablePasswordAuthentication": True,
                    "ssh": {
                        "publicKeys": [
                            {"path": f"/home/{USER}/.ssh/authorized_keys", "keyData": key}
                        ]
                    },
                },
            },
            "networkProfile": {"networkInterfaces": [card]},
        },
    )
    if request.zone is not None:
        body["zones"] = [request.zone]
    return body


def image(wanted: str) -> Body:
    """An image by its URN (`publisher:offer:sku:version`) or by its id in a subscription.

    Raises:
        ValueError: it is neither.
    """
    if wanted.startswith("/subscriptions/"):
        return {"id": wanted}
    parts = wanted.split(":")
    if len(parts) != 4 or not all(parts):
        raise ValueError(
            f"{wanted!r} is no image of Azure: give publisher:offer:sku:version "
            "(az vm image list) or the id of an image."
        )
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))


def disk(owner: contract.Owner, *, region: str, size_gigabytes: int) -> Body:
    """An empty volume."""
    return {
        **_tagged(
            owner,
            region=region,
            properties={
                "creationData": {"createOption": "Empty"},
                "diskSizeGB": size_gigabytes,
            },
        ),
        "sku": {"name": DISK_TYPE},
    }


def snapshot(owner: contract.Owner, *, region: str, of: str) -> Body:
    """A copy of a disk as it is now."""
    return _tagged(
        owner,
        region=region,
        properties={
            "creationData": {"createOption": "Copy", "sourceResourceId": of},
            "incremental": True,
        },
    )


def _tagged(owner: contract.Owner, *, region: str, properties: Body) -> Body:
    return {
        "location": region,
        "tags": dict(naming.tags_of(owner)),
        "properties": properties,
    }


def _key_of_nobody() -> str:
    public = rsa.generate_private_key(public_exponent=65_537, key_size=_BITS).public_key()
    encoded = public.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return f"{encoded.decode()} nobody"


def _until(moment: datetime.datetime | None) -> str:
    return "open" if moment is None else f"until {moment.isoformat()}"
