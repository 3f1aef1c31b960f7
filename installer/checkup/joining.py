"""Whether an installed machine has joined, and which ports its role uses from outside.

Of the data directory only two public facts are read; what is in it belongs to the worker's own
checkup.
"""

import json
import os
from typing import Any

from installer import layout as layout_kit
from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from installer.checkup import sockets
from wire_protocol import findings

PENDING = "pending-join.json"
_MOST = 65_536

Found = tuple[findings.Finding, ...]


def joined(seen: seen_kit.Seen) -> Found:
    """Whether this machine is a node yet."""
    if seen.layout.role is layout_kit.Role.PLATFORM:
        return ()
    folder = seen.layout.data_dir
    join = "sudo enlist worker join -" if seen.is_system else "enlist worker join -"
    try:
        agent = agent_file(seen)
        has_joined = agent is not None
        pending = not has_joined and os.path.lexists(seen.under(folder) / PENDING)
    except PermissionError:
        return (findings.skipped("joined", f"{folder} is closed to this account."),)
    except around_kit.CannotLook as error:
        return (findings.skipped("joined", f"{error} See worker.files."),)
    if pending:
        return (
            findings.transient(
                "joined",
                "A join was begun and is not finished; the machine goes on with it by itself.",
                command="journalctl -u enlist-join.service -n 50",
            ),
        )
    if agent is None:
        return (
            findings.needs_operator(
                "joined",
                "Installed, and not joined to a Platform yet: the Agent starts once it is.",
                command=f"{join}   (with the token of: enlist nodes enroll-token ID)",
            ),
        )
    return (findings.ok("joined", f"Joined as {agent.get('node_id')}."),)


def agent_file(seen: seen_kit.Seen) -> dict[str, Any] | None:
    """`agent.json`, or None before the join; raises `PermissionError` and `CannotLook`."""
    path = seen.under(seen.layout.data_dir) / "agent.json"
    try:
        with around_kit.opened(path, most=_MOST, flags=os.O_NOFOLLOW) as file:
            plain = json.loads(file.read(_MOST))
    except PermissionError:
        raise
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise around_kit.CannotLook(f"{path} cannot be read.") from error
    if not isinstance(plain, dict):
        raise around_kit.CannotLook(f"{path} cannot be read.")
    return plain


def ports(seen: seen_kit.Seen) -> list[tuple[int, str]]:
    """The ports that others must reach, each with what it is for; raises `CannotLook`."""
    if seen.layout.role is layout_kit.Role.PLATFORM:
        return sockets.beyond_this_machine(seen)
    try:
        agent = agent_file(seen)
    except PermissionError as error:
        raise around_kit.CannotLook(f"{seen.layout.data_dir} is closed to this account.") from error
    if agent is None or agent.get("connectivity") != "listen":
        return []
    port = agent.get("port")
    return [(port, "the Platform's calls")] if isinstance(port, int) else []
