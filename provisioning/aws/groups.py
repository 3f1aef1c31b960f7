"""Who may reach a machine: nobody, by one shared group of this installation in each network.

Whatever inbound rule is found in the shared group is taken out before it is used again. A person's
way in (port 22, from named addresses) is a group and a key of the machine's own, which go with it.
Nothing here has a client token at EC2: names are unique per network, and what has our name is ours
only where it carries our tags.

Known limit: machines that share the group may reach each other no more than strangers may.
"""

import datetime
from collections.abc import Mapping
from typing import Any, Final

from provisioning import contract, naming, outcomes
from provisioning.aws import account as account_kit
from provisioning.aws import calls, values

_SSH_PORT: Final = 22
_KIND = contract.ChildKind
_GONE: Final = frozenset({"InvalidGroup.NotFound", "InvalidGroupId.Malformed"})
_NO_KEY: Final = frozenset({"InvalidKeyPair.NotFound"})


def shared_name(installation: str) -> str:
    """The shared group's name, one a network."""
    return f"enlist-{installation}-{values.SHARED}"


async def find_shared(
    account: account_kit.Account, *, installation: str, network: str, region: str
) -> Mapping[str, Any] | None:
    """The shared group of this network; None where none was made yet."""
    wanted = values.of_installation(installation)
    wanted += [
        {"Name": f"tag:{values.MARK}", "Values": [values.SHARED]},
        *values.filters(vpc_id=network),
    ]
    found = await account.listed(
        calls.GROUPS, region=region, items="SecurityGroups", Filters=wanted
    )
    return found[0] if found else None


async def ensure_shared(
    account: account_kit.Account, *, installation: str, network: str, region: str
) -> str:
    """The shared group's id, made on first use, its inbound rules back at none."""
    found = await find_shared(account, installation=installation, network=network, region=region)
    if found is None:
        return await _create(
            account,
            name=shared_name(installation),
            network=network,
            region=region,
            description="No inbound, for machines of Enlist",
            tags={naming.INSTALLATION: installation, values.MARK: values.SHARED},
        )
    await _revoke_all(account, found, region=region)
    return str(found["GroupId"])


async def open_ssh(
    account: account_kit.Account, request: contract.Request, *, network: str
) -> str | None:
    """The machine's own group with port 22 open to the named addresses; None: to nowhere.

    May be repeated: the group is found again by its name and taken only with this operation's tags.
    """
    ssh = request.ssh
    if ssh is None or not ssh.sources:
        return None
    tags = {
        **naming.tags_of(request.owner),
        values.UNTIL: "" if ssh.until is None else _written(ssh.until),
    }
    group = await _create(
        account,
        name=naming.child_name(request.owner, _KIND.SECURITY_GROUP),
        network=network,
        region=request.region,
        description="SSH to one machine of Enlist, until it ends",
        tags=tags,
    )
    try:
        await account.call(
            calls.AUTHORIZE,
            region=request.region,
            GroupId=group,
            IpPermissions=[_permission(ssh.sources)],
        )
    except outcomes.Fault as fault:
        if fault.code != "InvalidPermission.Duplicate":
            raise
    return group


async def ensure_key(account: account_kit.Account, request: contract.Request) -> str | None:
    """The name of the person's key at EC2, brought there if need be; None where none is wanted."""
    if request.ssh is None:
        return None
    name = naming.child_name(request.owner, _KIND.SSH_KEY)
    try:
        await account.call(
            calls.IMPORT_KEY,
            region=request.region,
            KeyName=name,
            PublicKeyMaterial=request.ssh.public_key.encode(),
            TagSpecifications=[values.tagging("key-pair", naming.tags_of(request.owner))],
        )
    except outcomes.Fault as fault:
        if fault.code != "InvalidKeyPair.Duplicate":
            raise
        found = await find_key(account, name, region=request.region)
        if found is None or naming.owner_of(values.tags_of(found)) != request.owner:
            raise _foreign("key", name, ref=name) from fault
    return name


async def find_key(
    account: account_kit.Account, name: str, *, region: str
) -> Mapping[str, Any] | None:
    """The key of this name; None where there is none."""
    told = await account.call(calls.KEYS, region=region, Filters=values.filters(key_name=name))
    return next(iter(told.get("KeyPairs", [])), None)


async def find_group(
    account: account_kit.Account, group: str, *, region: str
) -> Mapping[str, Any] | None:
    """The group of this id; None where there is none."""
    found = await account.listed(
        calls.GROUPS,
        region=region,
        items="SecurityGroups",
        Filters=values.filters(group_id=group),
    )
    return found[0] if found else None


async def close_group(account: account_kit.Account, group: str, *, region: str) -> None:
    """Shuts a machine's own group, then deletes it; while the machine has it: `STATE`.

    So asking for its end while the machine still runs ends the way in at once.
    """
    found = await find_group(account, group, region=region)
    if found is None:
        return
    await _revoke_all(account, found, region=region)
    try:
        await account.call(calls.DELETE_GROUP, region=region, GroupId=group)
    except outcomes.Fault as fault:
        if fault.code not in _GONE:
            raise


async def delete_key(account: account_kit.Account, name: str, *, region: str) -> None:
    """Has the key forgotten; one that is gone is."""
    try:
        await account.call(calls.DELETE_KEY, region=region, KeyName=name)
    except outcomes.Fault as fault:
        if fault.code not in _NO_KEY:
            raise


async def _create(
    account: account_kit.Account,
    *,
    name: str,
    network: str,
    region: str,
    description: str,
    tags: Mapping[str, str],
) -> str:
    try:
        made = await account.call(
            calls.CREATE_GROUP,
            region=region,
            GroupName=name,
            Description=description,
            VpcId=network,
            TagSpecifications=[values.tagging("security-group", tags)],
        )
    except outcomes.Fault as fault:
        if fault.code != "InvalidGroup.Duplicate":
            raise
        found = await account.listed(
            calls.GROUPS,
            region=region,
            items="SecurityGroups",
            Filters=values.filters(group_name=name, vpc_id=network),
        )
        if not found or not tags.items() <= values.tags_of(found[0]).items():
            raise _foreign("security group", name, ref=name) from fault
        await _revoke_all(account, found[0], region=region)
        return str(found[0]["GroupId"])
    return str(made["GroupId"])


async def _revoke_all(
    account: account_kit.Account, group: Mapping[str, Any], *, region: str
) -> None:
    rules = group.get("IpPermissions") or []
    if rules:
        await account.call(
            calls.REVOKE, region=region, GroupId=group["GroupId"], IpPermissions=rules
        )


def _permission(sources: tuple[str, ...]) -> dict[str, Any]:
    return {
        "IpProtocol": "tcp",
        "FromPort": _SSH_PORT,
        "ToPort": _SSH_PORT,
        "IpRanges": [{"CidrIp": one} for one in sources if ":" not in one],
        "Ipv6Ranges": [{"CidrIpv6": one} for one in sources if ":" in one],
    }


def _foreign(what: str, name: str, *, ref: str) -> outcomes.Fault:
    return outcomes.Fault(
        f"A {what} named {name} is there and does not carry our tags: it is not touched. "
        "Delete it, or find out whose it is.",
        outcome=outcomes.Outcome.EXISTS_FOREIGN,
        topic=outcomes.Topic.STATE,
        ref=ref,
    )


def _written(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
