"""Everything of one installation, in every region that the connection watches.

One list per kind and region, all pages. A region that cannot be read makes the whole incomplete:
then nothing may be taken for gone. The shared group is nobody's child: it stays, costs nothing and
carries no operation's tags.

Known limit: a region that is not watched is not read; ordering there is refused for that reason.
"""

from collections.abc import Sequence

from provisioning import contract, naming, outcomes
from provisioning.aws import account as account_kit
from provisioning.aws import calls, children, machines, values


async def read(
    account: account_kit.Account, *, installation: str, regions: Sequence[str]
) -> contract.Inventory:
    """All there is. Raises `Fault` where the first region, the connection's own, cannot be read."""
    found_machines: list[contract.Instance] = []
    found_children: list[contract.Child] = []
    is_complete = True
    for position, region in enumerate(regions):
        try:
            there = await _machines(account, installation=installation, region=region)
            beside = await _beside(account, installation=installation, region=region)
        except outcomes.Fault:
            # the first is the connection's own; another may be switched off in this account
            if position == 0:
                raise
            is_complete = False
            continue
        found_machines += there
        found_children += _deduplicated(
            [*(child for one in there for child in one.children), *beside]
        )
    return contract.Inventory(
        machines=tuple(found_machines),
        children=tuple(found_children),
        is_complete=is_complete,
    )


async def _machines(
    account: account_kit.Account, *, installation: str, region: str
) -> list[contract.Instance]:
    wanted = values.of_installation(installation)
    found = await machines.list_instances(account, wanted, region=region)
    return [values.instance_of(one, region=region) for one in found if values.is_there(one)]


async def _beside(
    account: account_kit.Account, *, installation: str, region: str
) -> list[contract.Child]:
    wanted = values.of_installation(installation)

    async def listed(
        row: contract.ApiCall, items: str, **further: object
    ) -> list[dict[str, object]]:
        return await account.listed(row, region=region, items=items, Filters=wanted, **further)

    images = await listed(calls.IMAGES, "Images", Owners=["self"])
    of_images = {ref for one in images for ref in children.snapshots_of(one)}
    groups = await listed(calls.GROUPS, "SecurityGroups")
    snapshots = await listed(calls.SNAPSHOTS, "Snapshots", OwnerIds=["self"])
    keys = await listed(calls.KEYS, "KeyPairs")
    return [
        *(
            values.volume_child(one, region=region)
            for one in await listed(calls.VOLUMES, "Volumes")
        ),
        *(
            values.address_child(one, region=region)
            for one in await listed(calls.ADDRESSES, "Addresses")
        ),
        *(
            values.interface_child(one, region=region)
            for one in await listed(calls.INTERFACES, "NetworkInterfaces")
        ),
        *(
            values.snapshot_child(one, region=region)
            for one in snapshots
            if one["SnapshotId"] not in of_images
        ),
        *(values.image_child(one, region=region) for one in images),
        *(
            values.group_child(one, region=region, owner=naming.owner_of(values.tags_of(one)))
            for one in groups
            if values.tags_of(one).get(values.MARK) != values.SHARED
        ),
        *(
            values.key_child(
                str(one["KeyName"]), region=region, owner=naming.owner_of(values.tags_of(one))
            )
            for one in keys
        ),
    ]


def _deduplicated(found: Sequence[contract.Child]) -> list[contract.Child]:
    """Each once; what is told of a thing by its own list says more than its machine does."""
    return list({(one.kind, one.ref): one for one in found}.values())
