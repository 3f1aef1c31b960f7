"""The list of settings, from the groups' own fields and paragraphs."""

import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pydantic_core

from platform_server import command
from platform_server.settings import groups, layers
from scripts.pages import forms

_FLAGS: Final = {name: flag.replace("_", "-") for flag, name in command.SETTINGS.items()}
_NODE: Final = "<id>"


def text() -> str:
    """Every setting, section by section."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for section, field in groups.Settings.model_fields.items():
        group = groups.ConfiguredNode if section == "nodes" else field.annotation
        if group is None:
            raise TypeError(f"The section {section} has no type.")
        head = f"nodes.{_NODE}" if section == "nodes" else section
        yield from ("", f"## `[{head}]`", "", _paragraph(inspect.getdoc(group)))
        shapes = group.model_json_schema().get("properties", {})
        for name, one in group.model_fields.items():
            default = one.get_default(call_default_factory=True)
            yield from ("", f"### `{head}.{name}`", "", _paragraph(one.description), "")
            yield " · ".join(
                _facts(
                    f"{head}.{name}",
                    shape=shapes[name],
                    default="" if one.is_required() else _shown(default),
                )
            )


def _facts(full: str, *, shape: Mapping[str, Any], default: str) -> Iterator[str]:
    head, _, name = full.rpartition(".")
    yield forms.of(_without_null(shape), name=name)
    yield f"default: {default}" if default else "must be given"
    variable = f"{layers.PREFIX}{head}__{name}".upper().replace(".", "__").replace("-", "_")
    yield f"`{variable}`"
    if full in _FLAGS:
        yield f"`--{_FLAGS[full]}`"


def _without_null(shape: Mapping[str, Any]) -> Mapping[str, Any]:
    """A setting is left away rather than given as null."""
    choices = [one for one in shape.get("anyOf", [shape]) if one.get("type") != "null"]
    return {"anyOf": choices}


def _shown(default: Any) -> str:
    if default is None:
        return "unset"
    plain = pydantic_core.to_jsonable_python(default)
    return f"`{json.dumps(plain)}`"  # these values look the same in TOML


def _paragraph(doc: str | None) -> str:
    text = " ".join((doc or "").split())
    return textwrap.fill(text, width=100, break_long_words=False, break_on_hyphens=False)
