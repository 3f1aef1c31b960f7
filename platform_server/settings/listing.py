"""Lists every setting with its default, its value and its source: `--print-config`.

Never a secret: a password inside a database URL prints as dots, wherever in it it stands.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic_core

from platform_server.settings import groups, layers

_PASSWORD = re.compile(r"(://[^:/@?]*:)[^/?#]*(?=@)|([?&][^=&]*password=)[^&]*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One setting as it is shown."""

    name: str
    default: Any
    value: Any
    source: str
    text: str

    def as_json(self) -> Mapping[str, Any]:
        """The line for machines."""
        return {
            "name": self.name,
            "default": self.default,
            "value": self.value,
            "source": self.source,
            "description": self.text,
        }


def lines(loaded: layers.Loaded) -> Iterator[Line]:
    """Every setting in the order of the sections, then the configured nodes."""
    for section in groups.Settings.model_fields:
        group = getattr(loaded.settings, section)
        if section == "nodes":
            continue
        for name, field in type(group).model_fields.items():
            full = f"{section}.{name}"
            yield Line(
                name=full,
                default=_shown(field.get_default(call_default_factory=True)),
                value=_shown(getattr(group, name)),
                source=loaded.source_of(full),
                text=" ".join((field.description or "").split()),
            )
    for node_id, node in loaded.settings.nodes.items():
        for name, field in groups.ConfiguredNode.model_fields.items():
            full = f"nodes.{node_id}.{name}"
            yield Line(
                name=full,
                default=None,
                value=_shown(getattr(node, name)),
                source=loaded.source_of(full),
                text=" ".join((field.description or "").split()),
            )


def as_toml(loaded: layers.Loaded) -> str:
    """The settings as a person reads them: TOML with default and source behind each value."""
    out: list[str] = []
    section = ""
    for line in lines(loaded):
        head, _, name = line.name.rpartition(".")
        if head != section:
            section = head
            out += ["", f"[{head}]"]
        out += [f"# {line.text}"] if line.text else []
        setting = "" if line.value is not None else "# "
        out.append(
            f"{setting}{name} = {_toml(line.value)}  # default {_toml(line.default)}; "
            f"from {line.source}"
        )
    return "\n".join(out).strip() + "\n"


def _shown(value: Any) -> Any:
    plain = pydantic_core.to_jsonable_python(value)
    return hide_password(plain) if isinstance(plain, str) else plain


def hide_password(url: str) -> str:
    """The URL with dots in place of a password; anything else as it is."""
    return _PASSWORD.sub(lambda found: (found[1] or found[2]) + "••••", url)


def _toml(value: Any) -> str:
    if value is None:
        return "(unset)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)
