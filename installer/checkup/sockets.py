"""The ports that an installed Platform's socket units hold, and whether its settings say the same.

A port stands in two places, since the unit is read before the Platform runs: where they differ the
Platform tells machines a port at which nobody is heard. Known limit: a setting given by environment
in a drop-in of the service is not read.
"""

import os
import pathlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from installer import layout as layout_kit
from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from wire_protocol import findings

_STREAM = re.compile(r"^ListenStream=(\S*)\s*$", re.MULTILINE)
_MOST_DROP_INS = 32
_INNER = ("127.", "[::1]", "localhost")
# Each socket, the setting that must name the same port, its default, and what it is for.
_SOCKETS = (
    ("enlist-listener.socket", ("enrollment", "port"), 8444, "machines that join"),
    ("enlist-gateway.socket", ("gateway", "port"), 8445, "sessions of nodes"),
    ("enlist-bundles.socket", ("bundles", "port"), 8446, "releases for machines"),
    ("enlist-platform.socket", ("api", "listen"), "127.0.0.1:8440", "the API"),
)

Found = tuple[findings.Finding, ...]


def agree(seen: seen_kit.Seen) -> Found:
    """One finding for all of them."""
    if seen.layout.role is not layout_kit.Role.PLATFORM or seen.here.units is None:
        return ()
    path = seen.layout.data_dir / "config.toml"
    try:
        settings = _settings(seen.under(path))
    except PermissionError:
        return (findings.skipped("ports", f"{path} is closed to this account."),)
    except OSError as error:
        return (findings.skipped("ports", f"{path} is not read: {error.strerror}."),)
    except around_kit.CannotLook as error:
        return (findings.needs_operator("ports", f"{error}", command=f"sudoedit {path}"),)
    differing: dict[str, str] = {}
    for unit, (section, name), default, _ in _SOCKETS:
        wanted = settings.get(section, {}).get(name, default)
        held = [_port(stream) for stream in streams(seen, unit)]
        if wanted != "off" and held and _port(str(wanted)) not in held:
            differing[unit] = f"{section}.{name} is {wanted}, and {unit} has {held[0]}"
    if not differing:
        return (findings.ok("ports", "Socket units and settings name the same ports."),)
    first = next(iter(differing))
    return (
        findings.needs_operator(
            "ports",
            f"{'; '.join(differing.values())}: machines are told a port where nobody hears them.",
            command=f"sudo systemctl edit {first}   (or set it in {path}); then: sudo systemctl "
            f"restart {first} enlist-platform.service",
            facts={"differing": list(differing)},
        ),
    )


def beyond_this_machine(seen: seen_kit.Seen) -> list[tuple[int, str]]:
    """What is listened on for others, each with what it is for."""
    found: dict[int, str] = {}
    for unit, _, _, use in _SOCKETS:
        for stream in streams(seen, unit):
            port = _port(stream)
            if port is not None and not stream.startswith(_INNER):
                found.setdefault(port, use)
    return list(found.items())


def streams(seen: seen_kit.Seen, unit: str) -> list[str]:
    """What a socket unit listens on, as its drop-ins leave it."""
    folder = seen.here.units
    if folder is None:
        return []
    found: list[str] = []
    drop_ins = sorted((folder / f"{unit}.d").glob("*.conf"))[:_MOST_DROP_INS]
    for path in (folder / unit, *drop_ins):
        for stream in _STREAM.findall(_text(path)):
            found = [*found, stream] if stream else []  # an empty one takes all back
    return found


def _port(stream: str) -> int | None:
    last = stream.rpartition(":")[2]
    return int(last) if last.isdigit() else None


def _settings(path: pathlib.Path) -> Mapping[str, Any]:
    try:
        found = tomllib.loads(_text(path, flags=os.O_NOFOLLOW))  # it is the account's own folder
    except tomllib.TOMLDecodeError as error:
        raise around_kit.CannotLook(f"{path} cannot be read: {error}.") from error
    return {name: value for name, value in found.items() if isinstance(value, dict)}


def _text(path: pathlib.Path, *, flags: int = 0) -> str:
    try:
        with around_kit.opened(path, flags=flags) as file:
            return file.read(around_kit.MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
