"""The receipt, by which updates and the removal know what is here, and the command in the path."""

import functools
import os
import pathlib

from installer import layout as layout_kit
from installer.checkup import releases
from installer.checkup import seen as seen_kit
from runtime_kit import mends
from wire_protocol import findings

Found = tuple[findings.Finding, ...]


def receipt(seen: seen_kit.Seen) -> Found:
    """Whether it is there, can be read, and speaks of what is here."""
    path, found = seen.layout.receipt, seen.receipt
    if not os.path.lexists(seen.here.root):
        return (
            findings.needs_operator(
                "receipt",
                f"{seen.layout.root} is gone, and units of it are left: a removal was cut off.",
                command=f"sudo sh install.sh --role {seen.role} --uninstall   (or install again)",
            ),
        )
    if found is None:
        text = (
            f"{seen.receipt_fault}."
            if seen.receipt_fault
            else f"{path} is gone, so neither an update nor the removal knows what is here."
        )
        # The installer, too, stops at one that it cannot read.
        first = f"sudo rm {path}; " if seen.receipt_fault and seen.is_system else ""
        return (findings.needs_operator("receipt", text, command=f"{first}{seen.reinstall()}"),)
    facts = {
        "version": found.version,
        "release": found.release,
        "prefix": str(found.prefix),
        "data_dir": str(found.data_dir),
        "account": found.account,
        "installed_at": found.installed_at,
        "updated_at": found.updated_at,
        "firewall": [" ".join(one.done) for one in found.firewall],
        "packages": list(found.packages),
    }
    if (found.role, found.prefix) != (seen.layout.role, seen.layout.prefix):
        return (
            findings.needs_operator(
                "receipt",
                f"{path} speaks of the {found.role} in {found.prefix}: it was copied here.",
                command=seen.reinstall(),
                facts=facts,
            ),
        )
    if seen.current.names is not None and found.release != seen.current.names:
        return (
            findings.warning(
                "receipt",
                f"It names release {found.release}, and {seen.current.names} is in use: an update "
                "was cut off, or taken back.",
                command=seen.reinstall(),
                facts=facts,
            ),
        )
    return (
        findings.ok(
            "receipt",
            f"Version {found.version}, installed {found.installed_at}"
            + (f", updated {found.updated_at}." * (found.updated_at != found.installed_at) or "."),
            facts=facts,
        ),
    )


def command(seen: seen_kit.Seen) -> Found:
    """Whether `enlist` in the search path leads to a release that is here."""
    link = seen.layout.link
    facts = {"link": str(link)}
    here = seen.under(link)
    try:
        target = str(here.readlink())
    except FileNotFoundError:
        return (
            findings.needs_operator(
                "command",
                f"{link} is gone, so nobody finds the command enlist.",
                command=seen.fix(),
                facts=facts,
            ),
        )
    except OSError:
        return (
            findings.warning(
                "command",
                f"{link} is another program's, so ours is {seen.layout.command} alone.",
                command=f"ls -l {link}",
                facts=facts,
            ),
        )
    facts["target"] = target
    if target == str(seen.layout.command) or _is_the_others(seen, pathlib.PurePath(target)):
        return (findings.ok("command", f"{link} leads to {target}.", facts=facts),)
    return (
        findings.warning(
            "command",
            f"{link} leads to {target}, not to this installation.",
            command=f"ls -l {link}; {seen.layout.command} --version",
            facts=facts,
        ),
    )


def _is_the_others(seen: seen_kit.Seen, target: pathlib.PurePath) -> bool:
    """Where both roles are here the Platform's command is the one in the path; it can do all."""
    prefixes = (seen.layout.prefix, layout_kit.DEFAULT_PREFIX)
    return target in {
        prefix / role / "current" / "bin" / "enlist"
        for prefix in prefixes
        for role in layout_kit.Role
    }


def mends_of(seen: seen_kit.Seen) -> list[mends.Mend]:
    """The link in the search path, where nothing stands in its place."""
    link = seen.here.link
    if os.path.lexists(link):
        return []
    return [
        mends.Mend(
            action="link",
            target=str(seen.layout.link),
            detail=f"to {seen.layout.command}",
            apply=functools.partial(_link, seen),
        )
    ]


def _link(seen: seen_kit.Seen) -> None:
    with releases.alone(seen):
        seen.here.link.parent.mkdir(parents=True, exist_ok=True)
        seen.here.link.symlink_to(seen.layout.command)
