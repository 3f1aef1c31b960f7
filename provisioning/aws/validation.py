"""What a credential is and can do, found without making anything.

Three kinds of evidence, the strongest first: asking who we are; calls that are carried out
(reading) or rehearsed by EC2 itself (`DryRun`, with the parameters of a real order); and IAM's
simulation, which only explains, since it needs a right of its own and misjudges conditions. A right
that a rehearsal proves is never called missing because the simulation says so.

Known limit: rights to end and change things can only be simulated; without the right to simulate
they are told as unproved.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from provisioning import catalogue, contract, naming, outcomes
from provisioning.aws import account as account_kit
from provisioning.aws import calls, errors, placing, policy_text, trust, values

_VCPU_QUOTA: Final = "L-1216C47A"  # running on-demand standard instances, in vCPUs
_STANDARD: Final = frozenset("acdhimrtz")  # the families that this quota counts
_COUNTED: Final = frozenset({"pending", "running"})
_IAM_REGION: Final = "us-east-1"  # IAM is one for all regions, and answers here


@dataclasses.dataclass(slots=True)
class _Found:
    proved: set[str] = dataclasses.field(default_factory=set)
    denied: set[str] = dataclasses.field(default_factory=set)
    warnings: list[str] = dataclasses.field(default_factory=list)


async def validate(
    account: account_kit.Account, *, region: str, installation: str | None
) -> contract.Validation:
    """Proves the credential; raises `Fault` where it is none."""
    account.identity.forget()
    caller = await account.call(calls.CALLER, region=region)
    arn = str(caller["Arn"])
    found = _Found()
    if account.identity.has_external_id:
        await _try_without_external_id(account, found)
    await _read(account, found, region=region)
    await _rehearse(account, found, region=region, installation=installation or "check")
    needed = set(policy_text.rights(policy_text.EVERYTHING)) - _explaining()
    simulated = await _simulate(
        account, found, arn=arn, needed=needed, region=region, installation=installation
    )
    for right in sorted(simulated.denied & found.proved):
        found.warnings.append(
            f"IAM's simulation denies {right}, which a rehearsal just proved: it misjudges "
            "conditions, and is not believed."
        )
    missing = (found.denied | simulated.denied) - found.proved
    unproved = needed - found.proved - missing - simulated.proved
    return contract.Validation(
        account=str(caller["Account"]),
        principal=arn,
        missing=tuple(sorted(missing)),
        unproved=tuple(sorted(unproved)),
        room=await _room(account, found, region=region),
        warnings=tuple(found.warnings),
        details={
            "region": region,
            "trust_principal": trust.principal_of(arn),
            "simulated_only": sorted((simulated.denied | simulated.proved) - found.proved),
        },
    )


async def _try_without_external_id(account: account_kit.Account, found: _Found) -> None:
    try:
        is_open = await account.identity.is_open_without_external_id()
    except outcomes.Fault as fault:
        found.warnings.append(f"Whether the role demands its ExternalId was not found: {fault}")
        return
    if is_open:
        found.warnings.append(
            "The role can be taken on without its ExternalId, so whoever it trusts can be made to "
            "use it for somebody else (a confused deputy). Put the trust policy that we gave you "
            "on the role: aws iam update-assume-role-policy --role-name NAME "
            "--policy-document file://trust.json"
        )


async def _read(account: account_kit.Account, found: _Found, *, region: str) -> None:
    """Every reading call once, in its cheapest form."""
    for row, parameters in _READINGS.items():
        await _try(account, found, row, region=region, **parameters)


async def _rehearse(
    account: account_kit.Account, found: _Found, *, region: str, installation: str
) -> None:
    owner = contract.Owner(
        installation=installation, infra="default", operation="check", node="check", attempt=1
    )
    tags = naming.tags_of(owner)
    try:
        network = await placing.default_network(account, region=region)
        subnets = await account.listed(
            calls.SUBNETS, region=region, items="Subnets", Filters=values.filters(vpc_id=network)
        )
        tested = catalogue.tested("aws")
        image = await placing.newest(account, tested.images[0], build="x86_64", region=region)
    except (placing.Unplaceable, outcomes.Fault) as refusal:
        found.warnings.append(f"An order could not be rehearsed: {refusal}")
        return
    zone = str(subnets[0]["AvailabilityZone"]) if subnets else f"{region}a"
    rehearsals: Mapping[contract.ApiCall, dict[str, Any]] = {
        calls.DRY_RUN_INSTANCES: {
            "ImageId": image["ImageId"],
            "InstanceType": tested.tiers[0].size.name,
            "MinCount": 1,
            "MaxCount": 1,
            "TagSpecifications": [
                values.tagging(kind, tags) for kind in ("instance", "network-interface", "volume")
            ],
            **({"SubnetId": subnets[0]["SubnetId"]} if subnets else {}),
        },
        calls.DRY_CREATE_GROUP: {
            "GroupName": "enlist-check",
            "Description": "never made",
            "VpcId": network,
            "TagSpecifications": [values.tagging("security-group", tags)],
        },
        calls.DRY_CREATE_VOLUME: {
            "AvailabilityZone": zone,
            "Size": 1,
            "TagSpecifications": [values.tagging("volume", tags)],
        },
        calls.DRY_ALLOCATE: {
            "Domain": "vpc",
            "TagSpecifications": [values.tagging("elastic-ip", tags)],
        },
    }
    for row, parameters in rehearsals.items():
        await _try(account, found, row, region=region, DryRun=True, **parameters)
    if calls.RUN.name in found.proved:  # it was rehearsed with tags
        found.proved.add(calls.TAGGING)


async def _try(
    account: account_kit.Account,
    found: _Found,
    row: contract.ApiCall,
    *,
    region: str,
    **parameters: Any,
) -> None:
    right = row.right or row.name
    try:
        await account.call(row, region=region, **parameters)
    except outcomes.Fault as fault:
        if fault.outcome in {outcomes.Outcome.AUTH_LOST, outcomes.Outcome.CLOCK}:
            raise
        if fault.code == errors.DRY_RUN_PASSED:
            found.proved.add(right)
        elif fault.topic is outcomes.Topic.RIGHTS:
            found.denied.add(right)
        elif fault.topic is outcomes.Topic.QUOTA:
            found.proved.add(right)
            found.warnings.append(str(fault))
        else:
            found.warnings.append(f"{row.name} proved nothing: {fault}")
    else:
        found.proved.add(right)


async def _simulate(
    account: account_kit.Account,
    found: _Found,
    *,
    arn: str,
    needed: set[str],
    region: str,
    installation: str | None,
) -> _Found:
    """What IAM would say, each making call asked about with what it would make."""
    told = _Found()
    context = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
        for key, value in (
            (f"aws:ResourceTag/{naming.INSTALLATION}", installation or "any"),
            (f"aws:RequestTag/{naming.INSTALLATION}", installation or "any"),
            ("ec2:CreateAction", "RunInstances"),
        )
    ]
    who = trust.principal_of(arn)
    by_resource: dict[str | None, list[str]] = {}
    for right in sorted(needed):
        example = policy_text.example_of(right, region=region, account=arn.split(":")[4])
        if example is None or right not in found.proved:
            by_resource.setdefault(example, []).append(right)
    for example, rights in by_resource.items():
        try:
            answer = await account.call(
                calls.SIMULATE,
                region=_IAM_REGION,
                PolicySourceArn=who,
                ActionNames=rights,
                ContextEntries=context,
                ResourceArns=["*" if example is None else example],
            )
        except outcomes.Fault as fault:
            if fault.outcome in {outcomes.Outcome.AUTH_LOST, outcomes.Outcome.CLOCK}:
                raise
            found.warnings.append(
                "Rights to change and end things are unproved: IAM's simulation is not allowed "
                f"({calls.SIMULATE.right})."
            )
            return told
        for one in answer["EvaluationResults"]:
            allowed = one["EvalDecision"] == "allowed"
            (told.proved if allowed else told.denied).add(str(one["EvalActionName"]))
    return told


async def _room(account: account_kit.Account, found: _Found, *, region: str) -> int | None:
    """How many machines of the smallest tested size the quota still allows."""
    tested = catalogue.tested("aws").tiers[0].size
    try:
        quota = await account.call(
            calls.QUOTA, region=region, ServiceCode="ec2", QuotaCode=_VCPU_QUOTA
        )
        reservations = await account.listed(calls.INSTANCES, region=region, items="Reservations")
    except outcomes.Fault as fault:
        if fault.outcome in {outcomes.Outcome.AUTH_LOST, outcomes.Outcome.CLOCK}:
            raise
        found.warnings.append(f"How much the account's quota leaves was not told: {fault}")
        return None
    allowed = float(quota["Quota"]["Value"])
    used = sum(
        _cores(one)
        for some in reservations
        for one in some["Instances"]
        if values.state_of(one) in _COUNTED and str(one.get("InstanceType", "x"))[0] in _STANDARD
    )
    return max(0, int(allowed - used) // tested.cores)


def _cores(instance: Mapping[str, Any]) -> int:
    told = instance.get("CpuOptions") or {}
    return int(told.get("CoreCount", 1)) * int(told.get("ThreadsPerCore", 1))


def _explaining() -> set[str]:
    return {row.right for row in calls.EXPLAINING if row.right}


_READINGS: Final[Mapping[contract.ApiCall, dict[str, Any]]] = {
    calls.INSTANCES: {"MaxResults": 5},
    calls.TYPES: {"InstanceTypes": ["t3.small"]},
    calls.TYPE_OFFERINGS: {
        "LocationType": "region",
        "Filters": [{"Name": "instance-type", "Values": ["t3.small"]}],
    },
    calls.IMAGES: {"Owners": ["self"]},
    calls.VPCS: {"MaxResults": 5},
    calls.SUBNETS: {"MaxResults": 5},
    calls.GROUPS: {"MaxResults": 5},
    calls.INTERFACES: {"MaxResults": 5},
    calls.VOLUMES: {"MaxResults": 5},
    calls.SNAPSHOTS: {"OwnerIds": ["self"], "MaxResults": 5},
    calls.ADDRESSES: {},
    calls.KEYS: {},
}
