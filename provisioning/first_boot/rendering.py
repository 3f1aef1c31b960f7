"""Makes the text of first-boot data, and reads it back before anybody gets it.

One text for every provider: a `#cloud-config` for cloud-init, or the same as a shell script where a
provider has no cloud-init (`Form`). It carries the ticket and `program`, nothing else: whatever the
machine has to know stands in the ticket's signed document. `bootcmd` lays both out at every boot
and starts a unit; cloud-init runs the rest of its data once per instance, and a boot that was cut
in the middle would never run it again. The secret passes through no argument of a process.

Known limit: 16 KB less what providers wrap around it, ours and the operator's snippet together.
"""

import ast
import base64
import binascii
import dataclasses
import enum
import functools
import importlib.resources
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from provisioning import contract
from provisioning.first_boot import snippets

HEADER: Final = "#cloud-config\n"
SCRIPT_HEADER: Final = "#!/bin/sh\n"
FOLDER: Final = "/run/enlist-first-boot"
UNIT: Final = "enlist-first-boot.service"
WIPE_UNIT: Final = "enlist-first-boot-wipe.service"
_NO_PASSWORDS: Final = {"ssh_pwauth": False}
"""For sshd. Some providers set a password for root, and mail it, where no key was ordered."""

_PROGRAM_PATH: Final = f"{FOLDER}/program.py"
_END: Final = "ENLIST_END"
_TEXTS: Final = ("platform_url", "bundle_url", "node_id", "token")
_LISTS: Final = ("pins", "bundle_pins", "trust_key_ids")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")

_UNIT_TEXT: Final = f"""\
[Unit]
Description=Install Enlist and join
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0
[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -I {_PROGRAM_PATH}
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=3
StandardOutput=journal+console
StandardError=journal+console
"""
_WIPE_TEXT: Final = f"""\
[Unit]
Description=Wipe the spent ticket of the first boot
After=cloud-final.service
[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -I {_PROGRAM_PATH} --wipe
"""


class Form(enum.Enum):
    """What reads it on the machine."""

    CLOUD_CONFIG = "cloud-config"  # cloud-init
    SCRIPT = "script"  # an image without it, that runs a script at every boot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The signed first-boot document, as the machine presents it.

    `document` is the base64 of exact JSON bytes with all that the machine has to know.
    """

    document: str = dataclasses.field(repr=False)
    signature: str
    key_id: str


def render(
    ticket: Ticket,
    *,
    snippet: snippets.Snippet | None = None,
    form: Form = Form.CLOUD_CONFIG,
) -> str:
    """The text; ASCII, with line feeds alone.

    Raises `ValueError` with a sentence where the ticket's document lacks something, where the
    snippet cannot stand beside ours, or where all of it is too long for a provider.
    """
    _require_document(ticket.document)
    begin = _beginning(ticket)
    if form is Form.SCRIPT:
        if snippet is not None:
            raise ValueError("A snippet needs an image with cloud-init; this one gets a script.")
        text = f"{SCRIPT_HEADER}{begin}"
    else:
        config: dict[str, Any] = {"bootcmd": [begin], **_NO_PASSWORDS}
        text = HEADER + _emit(config if snippet is None else snippets.merged(config, snippet))
        _require_same(text, begin=begin)
    return _fitting(text)


def _fitting(text: str) -> str:
    size = len(text.encode("ascii"))
    if size > contract.MOST_FIRST_BOOT_BYTES:
        raise ValueError(
            f"The first-boot data has {size} bytes, and providers take "
            f"{contract.MOST_FIRST_BOOT_BYTES}: shorten the snippet."
        )
    return text


def add_snippet(text: str, snippet: snippets.Snippet) -> str:
    """First-boot data that was rendered, with what an operator adds; `ValueError` as `render`."""
    if not text.startswith(HEADER):
        raise ValueError("A snippet needs an image with cloud-init; this one gets a script.")
    config = yaml.safe_load(text)
    joined = HEADER + _emit(snippets.merged(config, snippet))
    _require_same(joined, begin=config["bootcmd"][0])
    return _fitting(joined)


def _beginning(ticket: Ticket) -> str:
    """What each boot does: lays out the ticket, the program and the units, and starts one."""
    given = {"document": ticket.document, "signature": ticket.signature, "key_id": ticket.key_id}
    files = (
        (f"{FOLDER}/ticket.json", json.dumps(given) + "\n"),
        (_PROGRAM_PATH, program()),
        (f"/run/systemd/system/{UNIT}", _UNIT_TEXT),
        (f"/run/systemd/system/{WIPE_UNIT}", _WIPE_TEXT),
    )
    written = "".join(f"cat >{path} <<'{_END}'\n{content}{_END}\n" for path, content in files)
    return (
        f"umask 077\nmkdir -p {FOLDER} /run/systemd/system\n{written}"
        f"systemctl daemon-reload\nsystemctl start --no-block {UNIT}\n"
    )


@functools.cache
def program() -> str:
    """`program.py` without what only its readers here need: docstrings, comments, types."""
    source = importlib.resources.files("provisioning.first_boot").joinpath("program.py")
    tree = _Bare().visit(ast.parse(source.read_text(encoding="utf-8")))
    lines = ast.unparse(ast.fix_missing_locations(tree)).splitlines()
    return "".join(f"{_indented(line)}\n" for line in lines)


def _indented(line: str) -> str:
    """One blank for four: a fifth of the program is indentation."""
    bare = line.lstrip(" ")
    return " " * ((len(line) - len(bare)) // 4) + bare


class _Bare(ast.NodeTransformer):
    """Takes docstrings and annotations away; what a function does stays."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        arguments = node.args
        for one in (*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if one is not None:
                one.annotation = None
        return self._without_docstring(node)

    def _without_docstring(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, so that a person can read what a machine was given."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _emit(config: Mapping[str, Any]) -> str:
    return yaml.dump(
        dict(config), Dumper=_Dumper, sort_keys=False, width=100_000, allow_unicode=False
    )


def _require_same(text: str, *, begin: str) -> None:
    """What cloud-init will read is what was meant, to the letter."""
    found = yaml.safe_load(text)
    if not isinstance(found, dict) or begin not in found.get("bootcmd", []):
        raise AssertionError("first-boot data does not read back as it was written")


def _require_document(document: str) -> None:
    """All that the program will look for is there, and nothing that would break out of a line."""
    try:
        known = (
            json.loads(base64.b64decode(document, validate=True)) if _is_plain(document) else None
        )
    except (binascii.Error, ValueError):
        raise ValueError("The ticket's document is no base64 of a JSON document.") from None
    if not isinstance(known, dict):
        raise ValueError("The ticket's document is no JSON object.")  # noqa: TRY004 - bad input
    lacks = [name for name in _TEXTS if not isinstance(known.get(name), str) or not known[name]]
    lacks += [name for name in _LISTS if not _is_texts(known.get(name))]
    for name in ("bundles", "installers"):
        named = known.get(name)
        if not isinstance(named, dict) or not named or not all(map(_is_hash, named.values())):
            lacks.append(name)
    if not lacks and set(known["bundles"]) != set(known["installers"]):
        lacks.append("the installer of each bundle")
    if lacks:
        raise ValueError(f"The ticket's document does not say {', '.join(lacks)}.")
    for name in ("platform_url", "bundle_url"):
        if not known[name].startswith("https://"):
            raise ValueError(f"The ticket's {name} is no https address.")


def _is_plain(document: str) -> bool:
    return _BASE64.fullmatch(document) is not None


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
