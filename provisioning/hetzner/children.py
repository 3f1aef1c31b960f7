"""What hangs on Hetzner machines or stands beside them: volumes, snapshots, primary addresses.

Also the two free things that a person's way in needs, an SSH key and a firewall. All but snapshots
have names that are unique in the project, so a repeated order finds what the first one made.

Known limit: an address can be given to a machine, or taken from it, only while that is off.
"""

import base64
import binascii
import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import hcloud
from hcloud.firewalls.domain import Firewall, FirewallRule
from hcloud.images.domain import Image
from hcloud.locations.domain import Location
from hcloud.primary_ips.domain import PrimaryIP
from hcloud.servers.domain import Server
from hcloud.ssh_keys.domain import SSHKey
from hcloud.volumes.domain import Volume

from provisioning import answers, contract, naming, outcomes
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, reading

T = TypeVar("T")
_KIND = contract.ChildKind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How one kind is spoken of: its path, the keys of one and of many, and its calls."""

    path: str
    one: str
    many: str
    listing: contract.ApiCall
    getting: contract.ApiCall
    deleting: contract.ApiCall
    read: Callable[[Mapping[str, Any]], contract.Child]
    delete: Callable[[hcloud.Client, int], object]


KINDS: Final[Mapping[contract.ChildKind, _Kind]] = {
    _KIND.VOLUME: _Kind(
        path="/volumes",
        one="volume",
        many="volumes",
        listing=calls.LIST_VOLUMES,
        getting=calls.GET_VOLUME,
        deleting=calls.DELETE_VOLUME,
        read=reading.volume,
        delete=lambda client, ref: client.volumes.delete(Volume(id=ref)),
    ),
    _KIND.SNAPSHOT: _Kind(
        path="/images",
        one="image",
        many="images",
        listing=calls.LIST_SNAPSHOTS,
        getting=calls.GET_SNAPSHOT,
        deleting=calls.DELETE_SNAPSHOT,
        read=reading.snapshot,
        delete=lambda client, ref: client.images.delete(Image(id=ref)),
    ),
    _KIND.ADDRESS: _Kind(
        path="/primary_ips",
        one="primary_ip",
        many="primary_ips",
        listing=calls.LIST_ADDRESSES,
        getting=calls.GET_ADDRESS,
        deleting=calls.DELETE_ADDRESS,
        read=reading.address,
        delete=lambda client, ref: client.primary_ips.delete(PrimaryIP(id=ref)),
    ),
    _KIND.SSH_KEY: _Kind(
        path="/ssh_keys",
        one="ssh_key",
        many="ssh_keys",
        listing=calls.LIST_SSH_KEYS,
        getting=calls.GET_SSH_KEY,
        deleting=calls.DELETE_SSH_KEY,
        read=reading.ssh_key,
        delete=lambda client, ref: client.ssh_keys.delete(SSHKey(id=ref)),
    ),
    _KIND.SECURITY_GROUP: _Kind(
        path="/firewalls",
        one="firewall",
        many="firewalls",
        listing=calls.LIST_FIREWALLS,
        getting=calls.GET_FIREWALL,
        deleting=calls.DELETE_FIREWALL,
        read=reading.firewall,
        delete=lambda client, ref: client.firewalls.delete(Firewall(id=ref)),
    ),
}

MOST_SOURCES: Final = 100  # of one firewall rule


async def describe(api: api_kit.Api, child: contract.Child) -> contract.Child | None:
    """The child as it is now."""
    kind = KINDS.get(child.kind)
    if kind is None or not child.ref.isdecimal():
        return None
    told = await api.get_or_none(kind.getting, f"{kind.path}/{child.ref}")
    return None if told is None else shaped(kind.getting, lambda: kind.read(told[kind.one]))


async def delete(api: api_kit.Api, child: contract.Child) -> None:
    """Has it deleted; what is gone already is fine.

    A firewall cannot be deleted while a machine has it; then it shuts port 22 to everybody at once,
    for whoever asks means that this way in is to end.
    """
    kind = KINDS.get(child.kind)
    if kind is None or not child.ref.isdecimal():
        return
    ref = int(child.ref)
    try:
        await api.ask(kind.deleting, lambda client: kind.delete(client, ref))
    except outcomes.Fault as fault:
        if fault.code == "not_found":
            return
        if child.kind is _KIND.SECURITY_GROUP and fault.code == "resource_in_use":
            rules = _rules(())
            await api.ask(
                calls.SET_RULES, lambda client: client.firewalls.set_rules(Firewall(id=ref), rules)
            )
        raise


async def listed(
    api: api_kit.Api, kind: contract.ChildKind, *, selector: str
) -> list[Mapping[str, Any]]:
    """Everything of this kind with these labels, all pages, as the provider tells it."""
    row = KINDS[kind]
    params = {"label_selector": selector}
    if kind is _KIND.SNAPSHOT:
        params["type"] = "snapshot"
    return list(await api.pages(row.listing, row.path, of=row.many, params=params))


async def create_volume(
    api: api_kit.Api, *, owner: contract.Owner, name: str, region: str, gigabytes: int
) -> contract.Child:
    """A volume in this location, attached to nothing."""

    def make(client: hcloud.Client) -> contract.Child:
        made = client.volumes.create(
            size=gigabytes,
            name=name,
            labels=_mistyped_labels(owner),
            location=Location(name=region),
        )
        return contract.Child(
            kind=_KIND.VOLUME,
            ref=str(made.volume.id),
            name=name,
            region=region,
            keep=True,
            owner=owner,
            size_gigabytes=gigabytes,
        )

    return await _made(api, _KIND.VOLUME, calls.CREATE_VOLUME, make, owner=owner, name=name)


async def create_address(
    api: api_kit.Api, *, owner: contract.Owner, name: str, region: str
) -> contract.Child:
    """A stable IPv4 address in this location, which outlives every machine."""

    def make(client: hcloud.Client) -> contract.Child:
        body = {
            "type": "ipv4",
            "name": name,
            "location": region,
            "assignee_type": "server",  # required, and not sent by the library's own method
            "auto_delete": False,
            "labels": _labels(owner),
        }
        made = client.request("POST", "/primary_ips", json=body)["primary_ip"]
        return contract.Child(
            kind=_KIND.ADDRESS,
            ref=str(made["id"]),
            name=name,
            region=region,
            keep=True,
            owner=owner,
            address=str(made["ip"]),
        )

    return await _made(api, _KIND.ADDRESS, calls.CREATE_ADDRESS, make, owner=owner, name=name)


async def create_snapshot(
    api: api_kit.Api, *, owner: contract.Owner, name: str, server: int
) -> contract.Child:
    """A snapshot of this machine's disk. Its name is not unique, so ours is looked for first."""
    earlier = await listed(api, _KIND.SNAPSHOT, selector=selector_of(owner))
    if earlier:
        return shaped(calls.LIST_SNAPSHOTS, lambda: reading.snapshot(earlier[0]))

    def make(client: hcloud.Client) -> contract.Child:
        made = client.servers.create_image(
            Server(id=server), description=name, type="snapshot", labels=_labels(owner)
        )
        return contract.Child(
            kind=_KIND.SNAPSHOT, ref=str(made.image.id), name=name, keep=True, owner=owner
        )

    return await _made(api, _KIND.SNAPSHOT, calls.CREATE_SNAPSHOT, make, owner=owner, name=name)


async def attach(api: api_kit.Api, child: contract.Child, *, to: str) -> None:
    """Gives the volume or address to this machine; where it has it already, nothing is sent."""
    now = await describe(api, child)
    if now is None:
        raise _gone(child)
    if now.attached_to == to:
        return
    ref, server = int(child.ref), int(to)
    if child.kind is _KIND.VOLUME:
        await api.ask(
            calls.ATTACH_VOLUME,
            lambda client: client.volumes.attach(
                Volume(id=ref), Server(id=server), automount=False
            ),
        )
    else:
        await api.ask(
            calls.ASSIGN_ADDRESS,
            lambda client: client.primary_ips.assign(
                PrimaryIP(id=ref), assignee_id=server, assignee_type="server"
            ),
        )


async def detach(api: api_kit.Api, child: contract.Child) -> None:
    """Takes it away from whatever has it; where nothing has it, nothing is sent."""
    now = await describe(api, child)
    if now is None or now.attached_to is None:
        return
    ref = int(child.ref)
    if child.kind is _KIND.VOLUME:
        await api.ask(calls.DETACH_VOLUME, lambda client: client.volumes.detach(Volume(id=ref)))
    else:
        await api.ask(
            calls.UNASSIGN_ADDRESS,
            lambda client: client.primary_ips.unassign(PrimaryIP(id=ref)),
        )


async def ensure_ssh_key(
    api: api_kit.Api, *, owner: contract.Owner, public_key: str
) -> contract.Child:
    """The project's entry of this key: ours, made now, or whoever's it is already."""
    name = naming.child_name(owner, _KIND.SSH_KEY)

    def make(client: hcloud.Client) -> contract.Child:
        made = client.ssh_keys.create(name=name, public_key=public_key, labels=_labels(owner))
        return contract.Child(kind=_KIND.SSH_KEY, ref=str(made.id), name=name, owner=owner)

    try:
        return await api.ask(calls.CREATE_SSH_KEY, make)
    except outcomes.Fault as fault:
        if fault.code != "uniqueness_error":
            raise
    found = await api.pages(
        calls.LIST_SSH_KEYS,
        "/ssh_keys",
        of="ssh_keys",
        params={"fingerprint": fingerprint(public_key)},
    )
    if not found:
        raise outcomes.Fault(
            f"The project holds another SSH key named {name}. Delete it there, then retry.",
            outcome=outcomes.Outcome.EXISTS_FOREIGN,
            topic=outcomes.Topic.STATE,
            code="uniqueness_error",
        )
    return shaped(calls.LIST_SSH_KEYS, lambda: reading.ssh_key(found[0]))


async def ensure_firewall(
    api: api_kit.Api, *, owner: contract.Owner, sources: tuple[str, ...]
) -> contract.Child:
    """A firewall that lets everything in but port 22, and that from these networks alone."""
    name = naming.child_name(owner, _KIND.SECURITY_GROUP)
    rules = _rules(sources)

    def make(client: hcloud.Client) -> contract.Child:
        made = client.firewalls.create(name=name, rules=rules, labels=_mistyped_labels(owner))
        return contract.Child(
            kind=_KIND.SECURITY_GROUP, ref=str(made.firewall.id), name=name, owner=owner
        )

    return await _made(
        api, _KIND.SECURITY_GROUP, calls.CREATE_FIREWALL, make, owner=owner, name=name
    )


def selector_of(owner: contract.Owner) -> str:
    """The label selector of one operation of one installation."""
    return (
        f"{naming.INSTALLATION}=={label(owner.installation)},"
        f"{naming.OPERATION}=={label(owner.operation)}"
    )


def label(value: str) -> str:
    """A value that means itself inside a selector: our own ids do, anything else is refused."""
    if not _is_label(value):
        raise outcomes.Fault(
            f"{value!r} cannot be looked for by label: letters, digits, '-', '_' and '.', "
            "at most 63.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )
    return value


def strange_labels(owner: contract.Owner) -> list[str]:
    """The tags of this owner that could not be labels."""
    return [name for name, value in naming.tags_of(owner).items() if not _is_label(value)]


def fingerprint(public_key: str) -> str:
    """The MD5 fingerprint by which the provider looks keys up.

    Raises:
        ValueError: this is no public key.
    """
    words = public_key.split()
    if len(words) < 2:
        raise ValueError("This is no public key like `ssh-ed25519 AAAA… name`.")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error as fault:
        raise ValueError("The public key's second word is not base64.") from fault
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))


def shaped(call: contract.ApiCall, read: Callable[[], T]) -> T:
    """What `read` makes of an answer; whatever is not there makes the answer unreadable."""
    try:
        return read()
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise answers.unanswered(call.name, "an answer without what it should hold") from None


async def _made(
    api: api_kit.Api,
    kind: contract.ChildKind,
    call: contract.ApiCall,
    make: Callable[[hcloud.Client], contract.Child],
    *,
    owner: contract.Owner,
    name: str,
) -> contract.Child:
    row = KINDS[kind]
    try:
        return await api.ask(call, make)
    except outcomes.Fault as fault:
        if fault.code != "uniqueness_error":
            raise
        found = await api.pages(row.listing, row.path, of=row.many, params={"name": name})
        children = shaped(row.listing, lambda: [row.read(one) for one in found])
        mine = [
            one
            for one in children
            if one.owner is not None
            and (one.owner.installation, one.owner.operation)
            == (owner.installation, owner.operation)
        ]
        if mine:
            return mine[0]
        raise outcomes.Fault(
            f"There is another {kind} named {name} in the project, and it is not ours.",
            outcome=outcomes.Outcome.EXISTS_FOREIGN if children else fault.outcome,
            topic=outcomes.Topic.STATE,
            code=fault.code,
            ref=children[0].ref if children else None,
        ) from None


def _rules(sources: tuple[str, ...]) -> list[FirewallRule]:
    everywhere = ["0.0.0.0/0", "::/0"]
    rules = [
        FirewallRule(direction="in", protocol="icmp", source_ips=everywhere),
        FirewallRule(direction="in", protocol="udp", port="1-65535", source_ips=everywhere),
        FirewallRule(direction="in", protocol="tcp", port="1-21", source_ips=everywhere),
        FirewallRule(direction="in", protocol="tcp", port="23-65535", source_ips=everywhere),
    ]
    if sources:
        rules.append(
            FirewallRule(direction="in", protocol="tcp", port="22", source_ips=list(sources))
        )
    return rules


def _gone(child: contract.Child) -> outcomes.Fault:
    return outcomes.Fault(
        f"The {child.kind} {child.ref} is not there any more.",
        outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
        topic=outcomes.Topic.CATALOGUE,
    )


def _labels(owner: contract.Owner) -> dict[str, str]:
    return dict(naming.tags_of(owner))


def _mistyped_labels(owner: contract.Owner) -> Any:
    """The same, where the library's hint says text and its code sends what it is given."""
    return _labels(owner)


def _is_label(value: str) -> bool:
    return (
        0 < len(value) <= 63
        and value.isascii()
        and value[0].isalnum()
        and value[-1].isalnum()
        and value.replace("-", "").replace("_", "").replace(".", "").isalnum()
    )
