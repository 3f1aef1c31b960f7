"""One machine's order as RunInstances takes it, and what to make of its answer.

The same request gives the same parameters, byte for byte: EC2 compares them under the client token.
First-boot data go in as text, since botocore encodes them, always and once. Tags are on instance,
disk and interface from the first moment. The metadata service answers sessions only (IMDSv2) and
tells containers nothing; every disk is encrypted and goes with the machine.
"""

from collections.abc import Mapping
from typing import Any, Final

from provisioning import contract, naming
from provisioning.aws import values

DISK_GIGABYTES: Final = 20
_TAGGED: Final = ("instance", "network-interface", "volume")


def parameters(
    request: contract.Request,
    *,
    image: Mapping[str, Any],
    groups: tuple[str, ...],
    key: str | None,
    has_ipv6: bool,
) -> dict[str, Any]:
    """The call's parameters for an exact request."""
    interface: dict[str, Any] = {
        "DeviceIndex": 0,
        "SubnetId": request.subnet,
        "Groups": list(groups),
        "AssociatePublicIpAddress": request.public_ipv4,
        "DeleteOnTermination": True,
    }
    if request.public_ipv6 and has_ipv6:
        interface["Ipv6AddressCount"] = 1
    ordered: dict[str, Any] = {
        "ImageId": request.image,
        "InstanceType": request.size,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": request.client_token,
        "UserData": request.first_boot,
        "NetworkInterfaces": [interface],
        "BlockDeviceMappings": [_root(request, image)],
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        },
        "InstanceInitiatedShutdownBehavior": "stop",
        "TagSpecifications": [
            values.tagging(kind, {**naming.tags_of(request.owner), "Name": request.name})
            for kind in _TAGGED
        ],
    }
    if key is not None:
        ordered["KeyName"] = key
    return ordered


def disk_gigabytes(request: contract.Request, image: Mapping[str, Any]) -> int:
    """How large the disk will be: as asked, and never smaller than the image."""
    sizes = [
        int(one["Ebs"].get("VolumeSize") or 0)
        for one in image.get("BlockDeviceMappings") or []
        if one.get("Ebs")
    ]
    return max([request.disk_gigabytes or DISK_GIGABYTES, *sizes])


def _root(request: contract.Request, image: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "DeviceName": image.get("RootDeviceName") or "/dev/xvda",
        "Ebs": {
            "DeleteOnTermination": True,
            "Encrypted": True,
            "VolumeType": "gp3",
            "VolumeSize": disk_gigabytes(request, image),
        },
    }
