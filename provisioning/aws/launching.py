"""Buying a machine at EC2: the order, its rehearsal, and how its launch goes.

The client token is the first net: the same order sent again is answered with the same machine. What
else EC2 says of a token is read here too: an order that differs is looked up by its token, never
sent again; one whose machine has ended is over for good (`IdempotentInstanceTerminated`).

Known limit: what is to hang on a machine (volumes, addresses) is attached when it runs, by `poll`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from provisioning import answers, contract, naming, outcomes
from provisioning.aws import account as account_kit
from provisioning.aws import calls, errors, groups, machines, orders, placing, values

_NOTHING_DONE: Final = frozenset(
    {outcomes.Outcome.NOT_DONE_RETRYABLE, outcomes.Outcome.NOT_DONE_PERMANENT}
)

_ENDED: Final = answers.Verdict(
    outcome=outcomes.Outcome.NOT_DONE_PERMANENT, topic=outcomes.Topic.OTHER
)


class Launches:
    """The orders of one connection."""

    def __init__(self, *, account: account_kit.Account, existing: machines.Machines) -> None:
        self._account = account
        self._machines = existing

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order once. Raises `Fault`."""
        try:
            exact = await placing.settle(self._account, request)
            image = await placing.image_of(self._account, exact.image, region=exact.region)
            subnet = await self._subnet(exact)
        except placing.Unplaceable as refusal:
            raise outcomes.Fault(
                str(refusal),
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.CATALOGUE,
            ) from refusal
        network = str(subnet["VpcId"])
        shared = await groups.ensure_shared(
            self._account,
            installation=exact.owner.installation,
            network=network,
            region=exact.region,
        )
        try:
            own = await groups.open_ssh(self._account, exact, network=network)
            key = await groups.ensure_key(self._account, exact)
            ordered = orders.parameters(
                exact,
                image=image,
                groups=tuple(filter(None, (shared, own))),
                key=key,
                has_ipv6=bool(subnet.get("Ipv6CidrBlockAssociationSet")),
            )
            found = await self._run(exact, ordered)
        except outcomes.Fault as fault:
            if fault.outcome in _NOTHING_DONE:
                await self._machines.clear_half_made(exact.owner, region=exact.region)
            raise
        return _created(exact, found, own_group=own, key=key)

    async def rehearse(self, request: contract.Request, *, image: Mapping[str, Any]) -> None:
        """Has EC2 judge the very order without carrying it out; raises the `Fault` it answers.

        Without a shared group yet, the network's own default group stands in.
        """
        subnet = await self._subnet(request)
        shared = await groups.find_shared(
            self._account,
            installation=request.owner.installation,
            network=str(subnet["VpcId"]),
            region=request.region,
        )
        ordered = orders.parameters(
            request,
            image=image,
            groups=() if shared is None else (str(shared["GroupId"]),),
            key=None,
            has_ipv6=bool(subnet.get("Ipv6CidrBlockAssociationSet")),
        )
        if shared is None:
            del ordered["NetworkInterfaces"][0]["Groups"]
        del ordered["ClientToken"]  # a rehearsal must not use up the order's own
        try:
            await self._account.call(
                calls.DRY_RUN_INSTANCES,
                region=request.region,
                hide=(request.first_boot,),
                DryRun=True,
                **ordered,
            )
        except outcomes.Fault as fault:
            if fault.code != errors.DRY_RUN_PASSED:
                raise

    async def poll(self, created: contract.Created) -> contract.Progress:
        """Whether it runs and has what is to hang on it. Raises `Fault` where the launch failed.

        One that was found again by its tags brings no `progress`: then describing is enough.
        """
        if created.progress is None:
            return contract.Progress.DONE
        pending = json.loads(created.progress)
        region = str(pending["region"])
        try:
            return await self._polled(created.ref, pending, region=region)
        except _Ended as ended:
            raise _launch_failed(ended.found) from None
        except outcomes.Fault as fault:
            if fault.code in errors.NOT_THERE:
                return contract.Progress.RUNNING  # not visible yet
            raise answers.of_asking(fault) from fault

    async def _polled(
        self, ref: str, pending: Mapping[str, Any], *, region: str
    ) -> contract.Progress:
        found = await self._machines.describe_once(ref, region=region)
        state = values.state_of(found)
        if state in {"terminated", "shutting-down"}:
            raise _Ended(found)
        if state == "pending":
            return contract.Progress.RUNNING
        await self._hang_on(found, pending, region=region)
        return contract.Progress.DONE

    async def _run(
        self, request: contract.Request, ordered: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        try:
            answer = await self._account.call(
                calls.RUN, region=request.region, hide=(request.first_boot,), **ordered
            )
        except outcomes.Fault as fault:
            if fault.code != errors.OTHER_PARAMETERS:
                raise
            raise await self._held_by_token(request, fault) from fault
        return dict(answer["Instances"][0])

    async def _held_by_token(
        self, request: contract.Request, fault: outcomes.Fault
    ) -> outcomes.Fault:
        """What the token was used for before, as the fault to raise."""
        wanted = values.filters(client_token=request.client_token)
        found = await machines.list_instances(self._account, wanted, region=request.region)
        if not found:
            return fault
        owner = naming.owner_of(values.tags_of(found[0]))
        is_mine = owner is not None and (owner.installation, owner.operation) == (
            request.owner.installation,
            request.owner.operation,
        )
        kinds = outcomes.Outcome
        return outcomes.Fault(
            f"This order's token was used with other parameters, for {found[0]['InstanceId']}.",
            outcome=kinds.EXISTS_MINE if is_mine else kinds.EXISTS_FOREIGN,
            topic=outcomes.Topic.STATE,
            code=fault.code,
            ref=str(found[0]["InstanceId"]),
        )

    async def _subnet(self, request: contract.Request) -> Mapping[str, Any]:
        found = await self._account.listed(
            calls.SUBNETS,
            region=request.region,
            items="Subnets",
            Filters=values.filters(subnet_id=str(request.subnet)),
        )
        if not found:
            raise placing.Unplaceable(f"{request.region} has no subnet {request.subnet}.")
        return dict(found[0])

    async def _hang_on(
        self, found: Mapping[str, Any], pending: Mapping[str, Any], *, region: str
    ) -> None:
        ref = str(found["InstanceId"])
        mappings = found.get("BlockDeviceMappings") or []
        held = {one.get("Ebs", {}).get("VolumeId") for one in mappings}
        for volume in pending.get("volumes", []):
            if volume not in held:
                await machines.attach_volume(self._account, volume, to=found, region=region)
        for address in pending.get("addresses", []):
            await machines.associate(self._account, address, to=ref, region=region)


class _Ended(Exception):
    """EC2 shows a machine that has ended."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        super().__init__(str(found.get("InstanceId")))
        self.found = found


def _created(
    request: contract.Request,
    found: Mapping[str, Any],
    *,
    own_group: str | None,
    key: str | None,
) -> contract.Created:
    instance = values.instance_of(found, region=request.region)
    owner, region = request.owner, request.region
    made = []
    if own_group is not None:
        group = {
            "GroupId": own_group,
            "GroupName": naming.child_name(owner, contract.ChildKind.SECURITY_GROUP),
        }
        made.append(values.group_child(group, region=region, owner=owner))
    if key is not None:
        made.append(values.key_child(key, region=region, owner=owner))
    instance = machines.with_children(instance, made)
    return contract.Created(
        ref=instance.ref,
        progress=json.dumps(
            {
                "region": region,
                "volumes": list(request.volumes),
                "addresses": list(request.addresses),
            }
        ),
        children=instance.children,
        instance=instance,
    )


def _launch_failed(found: Mapping[str, Any]) -> outcomes.Fault:
    """What a launch that EC2 accepted died of, in its own words (`Server.CODE`, `Client.CODE`)."""
    reason = found.get("StateReason") or {}
    raw = str(reason.get("Code", ""))
    code = raw.partition(".")[2] or raw
    verdict = errors.TABLE.get(code)
    if verdict is None or verdict.outcome not in _NOTHING_DONE:
        verdict = _ENDED
    return outcomes.Fault(
        f"{found['InstanceId']} ended before it ran: {reason.get('Message') or raw or 'no word'}.",
        outcome=verdict.outcome,
        topic=verdict.topic,
        code=code,
        link=verdict.link,
    )
