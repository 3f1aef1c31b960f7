"""What a value must look like, in words, from its JSON schema.

Known limit: it reads what pydantic writes for the models of this project, no other schema.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_UNITS: Final = {"bytes": "bytes", "seconds": "seconds", "days": "days", "minutes": "minutes"}
_FORMATS: Final = {"date-time": "time", "ipv4network": "network", "ipv6network": "network"}
_PLURAL: Final = re.compile(r"^(text|network|object)\b")
_TIME: Final = re.compile(r"(^|_)at$|^not_(before|after)$")  # written as text, read as a time


def of(shape: Mapping[str, Any], *, name: str) -> str:
    """The form; the name's ending is the unit of a number."""
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(of(one, name=name) for one in shape["anyOf"]))
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    if "enum" in shape:
        return " or ".join(f"`{one}`" for one in shape["enum"])
    if "const" in shape:
        return f"`{str(shape['const']).lower()}`"
    return _plain(shape, name=name)


def _plain(shape: Mapping[str, Any], *, name: str) -> str:
    match shape.get("type"):
        case "array":
            inner = _PLURAL.sub(r"\1s", of(shape.get("items", {}), name=name))
            most = f"at most {shape['maxItems']} " if "maxItems" in shape else ""
            form = f"list of {most}{inner}"
        case "object":
            value = shape.get("additionalProperties")
            form = (
                f"object {{name: {of(value, name=name)}}}"
                if value not in (None, True)
                else "object"
            )
        case "integer" | "number":
            form = _number(shape, name=name)
        case "boolean":
            form = "true or false"
        case "string":
            form = _text(shape, name=name)
        case other:
            form = str(other or "any value")
    return form


def _number(shape: Mapping[str, Any], *, name: str) -> str:
    kind = "whole number" if shape["type"] == "integer" else "number"
    unit = _UNITS.get(name.rpartition("_")[2])
    whole = f"{kind} of {unit}" if unit else kind
    low, high = shape.get("minimum"), shape.get("maximum")
    return whole if low is None or high is None else f"{whole}, {low} to {high}"


def _text(shape: Mapping[str, Any], *, name: str) -> str:
    if "format" in shape:
        return _FORMATS.get(shape["format"], "text")
    if _TIME.search(name):
        return "time"
    return f"text of at most {shape['maxLength']} characters" if "maxLength" in shape else "text"
