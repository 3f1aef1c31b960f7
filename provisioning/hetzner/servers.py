"""Machines at Hetzner Cloud: bought by one call, found by name and by label, polled together.

A name that is taken is looked up at once and counts as ours by its labels alone.
"""

import dataclasses
import functools
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final

from provisioning import answers, beforehand, contract, outcomes
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import (
    calls,
    children,
    closed,
    errors,
    labels,
    polls,
    reading,
    shapes,
    way_in,
)

_MOST_KNOWN: Final = 4096


class Servers:
    """The machines of one connection."""

    def __init__(self, api: api_kit.Api, *, memory: MutableMapping[str, Any]) -> None:
        self._api = api
        self._polls = polls.Polls(api)
        # Whose life an address shares is settled when it is made: asked once, not at each look.
        self._addresses: dict[int, contract.Child] = memory.setdefault("hetzner addresses", {})

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the one call that buys; a name that is taken is looked up before saying so."""
        for what, refs in (("volume", request.volumes), ("address", request.addresses)):
            for ref in refs:
                children.require(ref, what=what)
        addresses = [
            await self._api.get(calls.GET_ADDRESS, f"/primary_ips/{ref}")
            for ref in request.addresses
        ]
        fixed = shapes.shaped(calls.GET_ADDRESS, lambda: _fixed(addresses))
        made = await self._prepare(request)
        body = _order(request, made=made, fixed=fixed)
        try:
            told = await self._api.send(
                calls.CREATE_SERVER,
                "/servers",
                body=body,
                table=errors.CREATE_TABLE,
                hide=(request.first_boot,),
            )
        except outcomes.Fault as fault:
            refused = fault
            if fault.code == "uniqueness_error":
                refused = await self._taken(request)
            raise await self._taken_back(refused, made=made) from None
        return shapes.shaped(
            calls.CREATE_SERVER, lambda: _created(told, request, made=made, fixed=fixed)
        )

    async def _prepare(self, request: contract.Request) -> list[contract.Child]:
        """Key and firewall; raises `outcomes.Fault`, never with `UNKNOWN`."""
        owner, ssh = request.owner, request.ssh
        made: list[contract.Child] = []
        try:
            if ssh is None:
                return await closed.ensure(self._api, installation=owner.installation)
            public = ssh.public_key
            made.append(await way_in.ensure_ssh_key(self._api, owner=owner, public_key=public))
            made.append(await way_in.ensure_firewall(self._api, owner=owner, sources=ssh.sources))
        except outcomes.Fault as fault:
            raise await self._taken_back(beforehand.not_ordered(fault), made=made) from None
        return made

    async def _taken_back(
        self, refused: outcomes.Fault, *, made: Sequence[contract.Child]
    ) -> outcomes.Fault:
        delete = functools.partial(children.delete, self._api)
        return await beforehand.taken_back(refused, made=made, delete=delete)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How the actions of a create are doing; what is known of none any more is over."""
        ids = tuple(int(one) for one in (created.progress or "").split(",") if one)
        if not ids:
            return contract.Progress.DONE
        try:
            told = await self._polls.ask(ids)
        except outcomes.Fault as fault:
            raise answers.of_asking(fault) from None
        for action in (told[one] for one in ids if one in told):
            error: Mapping[str, Any] = action.get("error") or {}
            if action.get("status") == "error":
                raise answers.failed(
                    str(action.get("command", "the order")),
                    code=str(error.get("code", "")),
                    message=str(error.get("message", "")),
                    table=errors.FAILED_TABLE,
                )
        running = any(told[one].get("status") == "running" for one in ids if one in told)
        return contract.Progress.RUNNING if running else contract.Progress.DONE

    async def find(self, owner: contract.Owner, *, name: str) -> contract.Sightings:
        """By name, which is unique in the project, and by the labels of the operation.

        Key and firewall alone are no machine, since that may come late: they are taken over by the
        order's next attempt, or found by the sweeper.
        """
        selector = labels.selector(owner)
        by_name = await self.listed(params={"name": name})
        by_label = await self.listed(params={"label_selector": selector})
        found = {one.ref: one for one in [*by_name, *by_label]}
        hanging: tuple[contract.Child, ...] = ()
        if any(labels.is_same_order(one.owner, owner) for one in found.values()):
            kind = contract.ChildKind
            keys = await children.listed(self._api, kind.SSH_KEY, selector=selector)
            walls = await children.listed(self._api, kind.SECURITY_GROUP, selector=selector)
            hanging = (
                *shapes.shaped(calls.LIST_SSH_KEYS, lambda: [reading.ssh_key(one) for one in keys]),
                *shapes.shaped(
                    calls.LIST_FIREWALLS, lambda: [reading.firewall(one) for one in walls]
                ),
            )
        return contract.Sightings(
            instances=tuple(
                dataclasses.replace(one, children=(*one.children, *hanging))
                if labels.is_same_order(one.owner, owner)
                else one
                for one in found.values()
            )
        )

    async def describe(self, ref: str) -> contract.Instance | None:
        """The server with its addresses and volumes."""
        children.require(ref, what="machine")
        told = await self._api.get_or_none(calls.GET_SERVER, f"/servers/{ref}")
        if told is None:
            return None
        server: Mapping[str, Any] = shapes.shaped(calls.GET_SERVER, lambda: told["server"])
        hanging = shapes.shaped(calls.GET_SERVER, lambda: reading.volumes_of(server))
        for one in reading.primary_address_ids(server):
            address = await self._address(one)
            if address is not None:
                hanging.append(dataclasses.replace(address, attached_to=ref))
        return shapes.shaped(calls.GET_SERVER, lambda: reading.instance(server, children=hanging))

    async def _address(self, number: int) -> contract.Child | None:
        known = self._addresses.get(number)
        if known is None:
            child = contract.Child(kind=contract.ChildKind.ADDRESS, ref=str(number))
            known = await children.describe(self._api, child)
            if len(self._addresses) >= _MOST_KNOWN:
                self._addresses.clear()
            if known is not None:
                self._addresses[number] = known
        return known

    async def delete(self, ref: str) -> None:
        """Has the server deleted, with whatever was made along with it."""
        children.require(ref, what="machine")
        try:
            await self._api.send(calls.DELETE_SERVER, f"/servers/{ref}")
        except outcomes.Fault as fault:
            if fault.code != "not_found":
                raise

    async def reboot(self, ref: str) -> None:
        """Asks the machine's system to restart."""
        children.require(ref, what="machine")
        await self._api.send(calls.REBOOT, f"/servers/{ref}/actions/reboot")

    async def listed(self, *, params: Mapping[str, Any]) -> list[contract.Instance]:
        """All machines of this list."""
        told = await self._api.pages(calls.LIST_SERVERS, "/servers", of="servers", params=params)
        return shapes.shaped(calls.LIST_SERVERS, lambda: [reading.instance(one) for one in told])

    def close(self) -> None:
        """Ends what is being polled."""
        self._polls.close()

    async def _taken(self, request: contract.Request) -> outcomes.Fault:
        """The name is taken: by ours, by another's, or by one just deleted."""
        found = await self.listed(params={"name": request.name})
        wanted = (request.owner.installation, request.owner.operation)
        outcome, topic = outcomes.Outcome, outcomes.Topic
        if not found:
            return outcomes.Fault(
                f"The name {request.name} is still taken by what was just deleted.",
                outcome=outcome.NOT_DONE_RETRYABLE,
                topic=topic.STATE,
                code="uniqueness_error",
            )
        there = found[0]
        owner = there.owner
        is_mine = owner is not None and (owner.installation, owner.operation) == wanted
        return outcomes.Fault(
            f"There is a server named {request.name} already, and it is "
            f"{'ours' if is_mine else 'not ours'}.",
            outcome=outcome.EXISTS_MINE if is_mine else outcome.EXISTS_FOREIGN,
            topic=topic.STATE,
            code="uniqueness_error",
            ref=there.ref,
        )


def _fixed(addresses: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {str(one["primary_ip"]["type"]): int(one["primary_ip"]["id"]) for one in addresses}


def _order(
    request: contract.Request, *, made: Sequence[contract.Child], fixed: Mapping[str, int]
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": request.name,
        "server_type": request.size,
        "image": request.image,
        "location": request.region,
        "labels": labels.of(request.owner),
        "user_data": request.first_boot,
        "start_after_create": True,
        "public_net": {
            "enable_ipv4": request.public_ipv4 or "ipv4" in fixed,
            "enable_ipv6": request.public_ipv6 or "ipv6" in fixed,
            **fixed,
        },
    }
    keys = [one for one in made if one.kind is contract.ChildKind.SSH_KEY]
    firewalls = [one for one in made if one.kind is contract.ChildKind.SECURITY_GROUP]
    if keys:
        body["ssh_keys"] = [one.name for one in keys]
    if firewalls:
        body["firewalls"] = [{"firewall": int(one.ref)} for one in firewalls]
    if request.volumes:
        body |= {"volumes": [int(one) for one in request.volumes], "automount": False}
    if request.network is not None:
        body["networks"] = [int(request.network)]
    return body


def _created(
    told: Mapping[str, Any],
    request: contract.Request,
    *,
    made: Sequence[contract.Child],
    fixed: Mapping[str, int],
) -> contract.Created:
    server = told["server"]
    actions = [told["action"], *told["next_actions"]]
    return contract.Created(
        ref=str(server["id"]),
        progress=",".join(str(one["id"]) for one in actions),
        children=(
            *(one for one in made if not one.keep),
            *(
                contract.Child(
                    kind=contract.ChildKind.ADDRESS,
                    ref=str(one),
                    region=request.region,
                    keep=one in fixed.values(),
                    attached_to=str(server["id"]),
                )
                for one in reading.primary_address_ids(server)
            ),
        ),
    )
