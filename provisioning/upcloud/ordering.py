"""The body of an order to UpCloud, byte for byte the same for the same attempt.

Known limit: which system user takes the SSH key is the template's own choice at other providers;
here it is root, whom UpCloud's templates let in by key alone.
"""

from typing import Any

from provisioning import contract, naming
from provisioning.upcloud import reading


def body_of(request: contract.Request, *, image: str) -> dict[str, Any]:
    """What is sent as `server`; `image` is the template's id."""
    interfaces: list[dict[str, Any]] = [{"type": "utility", "family": "IPv4"}]
    if request.public_ipv4:
        interfaces.append({"type": "public", "family": "IPv4"})
    if request.public_ipv6:
        interfaces.append({"type": "public", "family": "IPv6"})
    disk: dict[str, Any] = {
        "action": "clone",
        "storage": image,
        "title": reading.titled(
            naming.child_name(request.owner, contract.ChildKind.DISK), request.owner
        ),
        "tier": "maxiops",
    }
    if request.disk_gigabytes is not None:
        disk["size"] = request.disk_gigabytes
    attached = [{"action": "attach", "storage": ref} for ref in request.volumes]
    keys = [] if request.ssh is None else [request.ssh.public_key]
    return {
        "title": request.name,
        "hostname": request.name,
        "zone": request.region,
        "plan": request.size,
        "metadata": "yes",  # a template with cloud-init is refused without it
        "user_data": request.first_boot,
        "password_delivery": "none",
        "remote_access_enabled": "no",
        "labels": {
            "label": [
                {"key": key, "value": value} for key, value in naming.tags_of(request.owner).items()
            ]
        },
        "login_user": {
            "username": "root",
            "create_password": "no",
            "ssh_keys": {"ssh_key": keys},
        },
        "networking": {
            "interfaces": {
                "interface": [
                    {
                        "type": one["type"],
                        "ip_addresses": {"ip_address": [{"family": one["family"]}]},
                    }
                    for one in interfaces
                ]
            }
        },
        "storage_devices": {"storage_device": [disk, *attached]},
    }
