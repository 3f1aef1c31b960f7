"""The root helper: its socket as only root and the Agent's group may use it, and its own trust set.

Without the socket a node can be neither updated nor put into the mesh; without a trust set of its
own the helper believes no order.
"""

import json
import os
import stat

from installer import changeover
from installer import layout as layout_kit
from installer.checkup import account, joining, services
from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from runtime_kit import private_files
from wire_protocol import findings

# As in `wire_protocol.helper_protocol`, which needs a package; a test holds them equal.
# them equal.
SOCKET = "/run/enlist-helper.sock"
_MODE = 0o660
_MOST = 65_536
_UNIT = "enlist-helper.socket"

Found = tuple[findings.Finding, ...]


def socket(seen: seen_kit.Seen) -> Found:
    """Whether the Agent can ask it, and nobody else."""
    if seen.layout.role is not layout_kit.Role.WORKER or not seen.is_system:
        return ()
    if not services.has_systemd(seen.around):
        return (findings.skipped("root-helper", "systemd does not run, so there is no socket."),)
    path = seen.around.under(SOCKET)
    try:
        info = path.lstat()
    except FileNotFoundError:
        return (
            findings.needs_operator(
                "root-helper",
                f"{SOCKET} is not there: this node cannot be updated from the "
                "Platform, and gets no mesh.",
                command=f"sudo systemctl enable --now {_UNIT}",
            ),
        )
    found = account.find(seen.around, seen.layout.account or "")
    facts = {"mode": f"{stat.S_IMODE(info.st_mode):04o}", "uid": info.st_uid, "gid": info.st_gid}
    right = (
        stat.S_ISSOCK(info.st_mode)
        and stat.S_IMODE(info.st_mode) == _MODE
        and info.st_uid == seen.around.root_uid
        and (found is None or info.st_gid == found.gid)
    )
    if not right:
        return (
            findings.needs_operator(
                "root-helper",
                f"{SOCKET} is not root's and its Agent's alone (mode "
                f"{facts['mode']}, owner {info.st_uid}:{info.st_gid}).",
                command=f"sudo systemctl restart {_UNIT}",
                facts=facts,
            ),
        )
    return (_trust(seen, facts=facts), *_last(seen))


def _trust(seen: seen_kit.Seen, *, facts: dict[str, object]) -> findings.Finding:
    folder, fine = seen.here.helper, "Its socket is as it must be."
    if folder is None or (folder.exists() and not os.access(folder, os.R_OK | os.X_OK)):
        return findings.ok("root-helper", fine, facts=facts)
    try:
        agent = joining.agent_file(seen)
    except (PermissionError, around_kit.CannotLook):
        agent = None
    if agent is None or os.path.lexists(folder / "trust.json"):
        return findings.ok("root-helper", fine, facts=facts)
    # Never from the Agent's own folder, which whoever took the Agent may have written: a token's
    # key ids prove the set.
    node = agent.get("node_id") or "ID"
    return findings.needs_operator(
        "root-helper",
        "It has no trust set of its own, so it believes no order of the Platform.",
        command=f"sudo enlist worker join -   (with a new token; on the Platform: enlist nodes "
        f"enroll-token {node} --replace)",
        facts=facts,
    )


def _last(seen: seen_kit.Seen) -> Found:
    """What became of the last update, where it did not go well."""
    folder = seen.here.helper
    if folder is None:
        return ()
    try:
        plain = json.loads(private_files.read_regular(folder / "last.json", max_bytes=_MOST))
    except (OSError, ValueError, private_files.FileTooLarge):
        return ()
    if not isinstance(plain, dict):
        return ()
    told = {name: str(plain.get(name, ""))[:512] for name in ("end", "release", "reason", "at")}
    if told["end"] == changeover.End.CHANGED:
        return (
            findings.ok(
                "last-update", f"{told['release']} came into use on {told['at']}.", facts=told
            ),
        )
    return (
        findings.warning(
            "last-update",
            f"The last update ({told['at']}) was taken back, and {told['release']} runs: "
            f"{told['reason'] or 'no reason was written down'}.",
            command="journalctl -u enlist-helper.service -u enlist-agent.service -n 100",
            facts=told,
        ),
    )
