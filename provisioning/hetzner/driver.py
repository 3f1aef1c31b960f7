"""Hetzner Cloud as the Platform's driver: one server a machine, its name unique in the project.

A name that is taken is looked up at once, and counts as ours by its labels alone. Data volumes and
addresses that were there before outlive the machine; the addresses made with it go with it.

Known limits: no console; a token shows neither its project nor the project's limits; the order of
checks behind the write probe is known from documents and waits for a live account to confirm it.
"""

import asyncio
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import hcloud
from hcloud.servers.domain import Server

from provisioning import answers, contract, credentials, naming, outcomes, providers
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, children, errors, planning, polls, reading

_CAPABILITIES: Final = frozenset(
    {
        contract.Capability.ADDRESSES,
        contract.Capability.CUSTOM_IMAGE,
        contract.Capability.NETWORKS,
        contract.Capability.PRICE,
        contract.Capability.REBOOT,
        contract.Capability.SNAPSHOTS,
        contract.Capability.SSH_KEY,
        contract.Capability.VOLUMES,
    }
)
_LOOKUP: Final = contract.LookupRules(clean_answers=1, settle=datetime.timedelta(seconds=30))
_OFFER_SECONDS: Final = 300.0
_SKEW_SECONDS: Final = 120
_LOW_BUDGET: Final = 5  # a fifth
_SMALLEST_VOLUME: Final = 10  # gigabytes, and the default


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver on this connection; nothing is called yet."""
    if not isinstance(opening.credential, credentials.Token):
        raise providers.Refused("Hetzner Cloud is opened with a token.")
    return Driver(opening, opening.credential)


class Driver:
    """One connection. See `contract.Driver` for what each method promises."""

    provider = "hetzner"
    capabilities = _CAPABILITIES
    calls: Sequence[contract.ApiCall] = calls.ALL
    lookup = _LOOKUP

    def __init__(self, opening: providers.Opening, token: credentials.Token) -> None:
        self._clock = opening.clock
        self._principal = hashlib.sha256(token.token.reveal().encode()).hexdigest()[:12]
        self._api = api_kit.Api(opening, token)
        self._polls = polls.Polls(self._api)
        self._offer: tuple[float, contract.Offer] | None = None
        self._pricing: tuple[float, Mapping[str, Any]] | None = None

    async def validate(self) -> contract.Validation:
        """Reads one server, then sends a write that can only be refused."""
        told = await self._api.get(calls.FIRST_SERVER, "/servers", params={"per_page": 1})
        warnings = self._doubts()
        missing: tuple[str, ...] = ()
        try:
            await self._api.ask(
                calls.PROBE_WRITE,
                lambda client: client.request("POST", "/placement_groups", json={}),
            )
        except outcomes.Fault as fault:
            if fault.topic is outcomes.Topic.RIGHTS:
                missing = ("read & write",)
            elif fault.topic is not outcomes.Topic.INPUT:
                raise
        servers = told.get("meta", {}).get("pagination", {}).get("total_entries")
        return contract.Validation(
            account="the project that the token was made in",
            principal=f"token {self._principal}…",
            missing=missing,
            unproved=("the project's limits (an order alone shows them)",),
            warnings=tuple(warnings),
            details={"servers": servers, "calls_left": self._budget_left()},
        )

    async def offer(self) -> contract.Offer:
        """Server types with their places and prices, asked for anew after five minutes."""
        now = self._clock.monotonic()
        if self._offer is not None and now - self._offer[0] < _OFFER_SECONDS:
            return self._offer[1]
        pricing = await self._prices()
        told = await self._api.pages(
            calls.SERVER_TYPES, "/server_types", of="server_types", params={}
        )

        def read() -> contract.Offer:
            currency = str(pricing["currency"])
            addresses = planning.address_price(pricing)
            return contract.Offer(
                regions=planning.location_names(list(told)),
                sizes=tuple(
                    reading.size(one, currency=currency, now=self._clock.now()) for one in told
                ),
                address_price=next(iter(addresses.values()), None),
                told_at=self._clock.now(),
            )

        offer = children.shaped(calls.SERVER_TYPES, read)
        self._offer = (now, offer)
        return offer

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Names, size, image, network, places, price."""
        return await planning.plan(self._api, request, offer=await self.offer())

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the one call that buys; a name that is taken is looked up before saying so."""
        made: list[contract.Child] = []
        if request.ssh is not None:
            owner, ssh = request.owner, request.ssh
            made.append(
                await children.ensure_ssh_key(self._api, owner=owner, public_key=ssh.public_key)
            )
            made.append(await children.ensure_firewall(self._api, owner=owner, sources=ssh.sources))
        addresses = [
            await self._api.get(calls.GET_ADDRESS, f"/primary_ips/{ref}")
            for ref in request.addresses
        ]
        try:
            return await self._api.ask(
                calls.CREATE_SERVER,
                lambda client: _create(client, request, made=made, addresses=addresses),
                table=errors.CREATE_TABLE,
                hide=(request.first_boot,),
            )
        except outcomes.Fault as fault:
            if fault.code != "uniqueness_error":
                raise
        raise await self._taken(request)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How the actions of a create are doing; what is known of none any more is over."""
        ids = tuple(int(one) for one in (created.progress or "").split(",") if one)
        if not ids:
            return contract.Progress.DONE
        told = await self._polls.ask(ids)
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

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By name, which is unique in the project, and by the labels of the operation."""
        del region
        selector = children.selector_of(owner)
        by_name = await self._servers(params={"name": name})
        by_label = await self._servers(params={"label_selector": selector})
        found = {one.ref: one for one in [*by_name, *by_label]}
        if found:
            return contract.Sightings(instances=tuple(found.values()))
        rest = [
            await children.listed(self._api, kind, selector=selector)
            for kind in (contract.ChildKind.SSH_KEY, contract.ChildKind.SECURITY_GROUP)
        ]
        hanging = (
            *(reading.ssh_key(one) for one in rest[0]),
            *(reading.firewall(one) for one in rest[1]),
        )
        if not hanging:
            return contract.Sightings(instances=())
        half = contract.Instance(
            ref=f"none-{name}",
            name=name,
            region="",
            power=contract.Power.FAILED,
            raw_state="absent",
            owner=owner,
            children=hanging,
            failure="only what hangs on the machine was made",
        )
        return contract.Sightings(instances=(half,))

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The server with its addresses and volumes."""
        del region
        if not ref.isdecimal():
            return None
        told = await self._api.get_or_none(calls.GET_SERVER, f"/servers/{ref}")
        if told is None:
            return None
        server: Mapping[str, Any] = children.shaped(calls.GET_SERVER, lambda: told["server"])
        hanging = children.shaped(calls.GET_SERVER, lambda: reading.volumes_of(server))
        for one in reading.primary_address_ids(server):
            child = contract.Child(kind=contract.ChildKind.ADDRESS, ref=str(one))
            address = await children.describe(self._api, child)
            if address is not None:
                hanging.append(address)
        return children.shaped(calls.GET_SERVER, lambda: reading.instance(server, children=hanging))

    async def delete(self, ref: str, *, region: str) -> None:
        """Has the server deleted, with whatever was made along with it."""
        del region
        if not ref.isdecimal():
            return
        try:
            await self._api.ask(
                calls.DELETE_SERVER, lambda client: client.servers.delete(Server(id=int(ref)))
            )
        except outcomes.Fault as fault:
            if fault.code != "not_found":
                raise

    async def reboot(self, ref: str, *, region: str) -> None:
        """Asks the machine's system to restart."""
        del region
        await self._api.ask(calls.REBOOT, lambda client: client.servers.reboot(Server(id=int(ref))))

    async def inventory(self, installation: str) -> contract.Inventory:
        """One list a kind, by this installation's label."""
        selector = f"{naming.INSTALLATION}=={children.label(installation)}"
        machines = await self._servers(params={"label_selector": selector})
        kind = contract.ChildKind
        told = {
            one: await children.listed(self._api, one, selector=selector) for one in children.KINDS
        }
        billed = any(told[one] for one in (kind.VOLUME, kind.SNAPSHOT, kind.ADDRESS))
        pricing = await self._prices() if billed else None

        def read() -> tuple[contract.Child, ...]:
            volume = snapshot = None
            addresses: dict[str, contract.Price] = {}
            if pricing is not None:
                money = str(pricing["currency"])
                volume = reading.monthly_price(
                    pricing["volume"]["price_per_gb_month"], currency=money
                )
                snapshot = reading.monthly_price(
                    pricing["image"]["price_per_gb_month"], currency=money
                )
                addresses = planning.address_price(pricing)
            return (
                *(reading.volume(one, monthly_a_gigabyte=volume) for one in told[kind.VOLUME]),
                *(
                    reading.snapshot(one, monthly_a_gigabyte=snapshot)
                    for one in told[kind.SNAPSHOT]
                ),
                *(reading.address(one, prices=addresses) for one in told[kind.ADDRESS]),
                *(reading.ssh_key(one) for one in told[kind.SSH_KEY]),
                *(reading.firewall(one) for one in told[kind.SECURITY_GROUP]),
            )

        return contract.Inventory(
            machines=tuple(machines),
            children=children.shaped(calls.LIST_VOLUMES, read),
            calls_left=self._budget_left(),
        )

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now."""
        return await children.describe(self._api, child)

    async def delete_child(self, child: contract.Child) -> None:
        """Has it deleted."""
        await children.delete(self._api, child)

    async def create_child(
        self,
        kind: contract.ChildKind,
        *,
        owner: contract.Owner,
        name: str,
        region: str,
        size_gigabytes: int | None = None,
        of: str | None = None,
    ) -> contract.Child:
        """A volume, a snapshot of a machine, or a stable IPv4 address."""
        if kind is contract.ChildKind.VOLUME:
            return await children.create_volume(
                self._api,
                owner=owner,
                name=name,
                region=region,
                gigabytes=size_gigabytes or _SMALLEST_VOLUME,
            )
        if kind is contract.ChildKind.ADDRESS:
            return await children.create_address(self._api, owner=owner, name=name, region=region)
        if kind is contract.ChildKind.SNAPSHOT and of is not None and of.isdecimal():
            return await children.create_snapshot(self._api, owner=owner, name=name, server=int(of))
        raise outcomes.Fault(
            f"Hetzner Cloud makes no {kind} here; a snapshot is made of a machine.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives the volume or address to the machine."""
        await children.attach(self._api, child, to=to)

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it."""
        await children.detach(self._api, child)

    async def console(self, ref: str, *, region: str) -> str | None:
        """Nothing: the console is a screen there, no text."""
        del ref, region
        await asyncio.sleep(0)
        return None

    async def close(self) -> None:
        """Gives connections and threads back."""
        await asyncio.sleep(0)
        self._polls.close()
        self._api.close()

    async def _servers(self, *, params: Mapping[str, Any]) -> list[contract.Instance]:
        told = await self._api.pages(calls.LIST_SERVERS, "/servers", of="servers", params=params)
        return children.shaped(calls.LIST_SERVERS, lambda: [reading.instance(one) for one in told])

    async def _taken(self, request: contract.Request) -> outcomes.Fault:
        """The name is taken: by ours, by another's, or by one just deleted."""
        found = await self._servers(params={"name": request.name})
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

    async def _prices(self) -> Mapping[str, Any]:
        now = self._clock.monotonic()
        if self._pricing is None or now - self._pricing[0] >= _OFFER_SECONDS:
            told = await self._api.get(calls.PRICING, "/pricing")
            self._pricing = (now, children.shaped(calls.PRICING, lambda: told["pricing"]))
        return self._pricing[1]

    def _doubts(self) -> list[str]:
        told = self._api.told
        date = answers.server_date(told.headers) if told is not None else None
        found = []
        if date is not None:
            skew = (self._clock.now() - date).total_seconds()
            if abs(skew) > _SKEW_SECONDS:
                found.append(str(outcomes.clock_fault(date, clock=self._clock)))
        budget = self._api.budget
        if budget is not None and budget.left * _LOW_BUDGET < budget.most:
            found.append(
                f"Of this hour's {budget.most} calls of the project {budget.left} are left."
            )
        return found

    def _budget_left(self) -> int | None:
        return None if self._api.budget is None else self._api.budget.left


def _create(
    client: hcloud.Client,
    request: contract.Request,
    *,
    made: Sequence[contract.Child],
    addresses: Sequence[Mapping[str, Any]],
) -> contract.Created:
    fixed = {str(one["primary_ip"]["type"]): int(one["primary_ip"]["id"]) for one in addresses}
    body: dict[str, Any] = {
        "name": request.name,
        "server_type": request.size,
        "image": request.image,
        "location": request.region,
        "labels": dict(naming.tags_of(request.owner)),
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
    # Not by the library's own method: its models refuse an answer that lacks one new field, and
    # then a machine that was bought would have to be looked for.
    answer = client.request("POST", "/servers", json=body)
    server, actions = answer["server"], [answer["action"], *answer["next_actions"]]
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
