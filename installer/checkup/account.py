"""The accounts of a role: there, without a login, and in no group that gives them more.

Known limit: whether an account has a password is not read; without a shell it opens no door.
"""

import dataclasses
import grp
import pathlib
import pwd
from collections.abc import Iterator, Mapping
from typing import Any

from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from wire_protocol import findings

_NO_LOGIN = ("nologin", "false")
_STRONG = frozenset(
    {"root", "sudo", "wheel", "adm", "admin", "disk", "shadow", "docker", "podman", "lxd",
     "libvirt", "kvm", "systemd-journal"}
)  # fmt: skip
# What the edge serves, the Platform writes; no other account of ours is in another's group.
_SHARED = {"enlist-platform": ("enlist-edge",)}

Found = tuple[findings.Finding, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One line of the account file, and the groups that name it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    group: str | None  # the name of its own group
    groups: tuple[str, ...]  # others that list it


def accounts(seen: seen_kit.Seen) -> Found:
    """One finding an account."""
    if not seen.layout.accounts:
        return (
            findings.skipped("account", "Installed by a plain user: whoever installed it runs it."),
        )
    return tuple(_account(seen, name) for name in seen.layout.accounts)


def _account(seen: seen_kit.Seen, name: str) -> findings.Finding:
    check = f"account.{name}"
    found = find(seen.around, name)
    if found is None:
        return findings.needs_operator(
            check, f"The account {name} is gone: nothing can run as it.", command=seen.reinstall()
        )
    facts = {
        "uid": found.uid,
        "group": found.group,
        "groups": list(found.groups),
        "shell": found.shell,
        "home": found.home,
    }
    return (
        _login(found, check, seen=seen, facts=facts)
        or _membership(found, check, facts=facts)
        or findings.ok(check, f"{name} (uid {found.uid}) cannot log in.", facts=facts)
    )


def _login(
    found: Account, check: str, *, seen: seen_kit.Seen, facts: Mapping[str, Any]
) -> findings.Finding | None:
    name = found.name
    if found.uid == 0 and seen.around.root_uid == 0:
        return findings.needs_operator(
            check,
            f"{name} has uid 0: what runs as it is root.",
            command=f"sudo userdel {name}; {seen.reinstall()}",
            facts=facts,
        )
    if pathlib.PurePath(found.shell).name not in _NO_LOGIN:
        return findings.needs_operator(
            check,
            f"{name} can log in ({found.shell or 'the default shell'}).",
            command=f"sudo usermod --shell /usr/sbin/nologin {name}",
            facts=facts,
        )
    return None


def _membership(found: Account, check: str, *, facts: Mapping[str, Any]) -> findings.Finding | None:
    name = found.name
    if found.group != name:
        return findings.needs_operator(
            check,
            f"{name}'s own group is {found.group or found.gid}, not {name}: its members may read "
            "what it shares with its group.",
            command=f"sudo groupadd --force --system {name}; sudo usermod --gid {name} {name}",
            facts=facts,
        )
    more = [group for group in found.groups if group not in _SHARED.get(name, ())]
    strong = [group for group in more if group in _STRONG or group.startswith("enlist-")]
    command = "; ".join(f"sudo gpasswd --delete {name} {group}" for group in strong or more)
    if strong:
        return findings.needs_operator(
            check,
            f"{name} is in {', '.join(strong)}, so whoever takes over what runs as it gets those "
            "rights too.",
            command=command,
            facts=facts,
        )
    if more:
        return findings.warning(
            check, f"{name} is also in {', '.join(more)}.", command=command, facts=facts
        )
    return None


def find(around: around_kit.Around, name: str) -> Account | None:
    """The account, from this machine's own sources or from the files of another tree."""
    found = next((one for one in _users(around, name) if one.pw_name == name), None)
    if found is None:
        return None
    groups = list(_groups(around))
    own = next((one.gr_name for one in groups if one.gr_gid == found.pw_gid), None)
    more = [one.gr_name for one in groups if name in one.gr_mem and one.gr_gid != found.pw_gid]
    return Account(
        name=name,
        uid=found.pw_uid,
        gid=found.pw_gid,
        home=found.pw_dir,
        shell=found.pw_shell,
        group=own,
        groups=tuple(more),
    )


def _users(around: around_kit.Around, name: str) -> Iterator[pwd.struct_passwd]:
    if around.is_this_machine:
        try:
            yield pwd.getpwnam(name)
        except KeyError:
            return
        return
    for words in _lines(around, "/etc/passwd", fields=7):
        yield pwd.struct_passwd((*words[:2], int(words[2]), int(words[3]), *words[4:]))


def _groups(around: around_kit.Around) -> Iterator[grp.struct_group]:
    if around.is_this_machine:
        yield from grp.getgrall()
        return
    for words in _lines(around, "/etc/group", fields=4):
        members = [one for one in words[3].split(",") if one]
        yield grp.struct_group((words[0], words[1], int(words[2]), members))


def _lines(around: around_kit.Around, path: str, *, fields: int) -> Iterator[list[str]]:
    try:
        content = around_kit.read(around.under(path)).decode(errors="replace")
    except FileNotFoundError:
        return
    for line in content.splitlines():
        words = line.split(":")
        if len(words) == fields:
            yield words
