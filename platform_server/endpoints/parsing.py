"""Turns bodies and queries into models, or refuses naming the field.

Bodies are strict JSON: the right types, no unknown field, nothing coerced. Queries are texts, so
their numbers are read from texts, but a field given twice or not known is refused too.
"""

import types
import typing
from collections.abc import Sequence
from typing import Any, Final

import pydantic

from platform_server.endpoints import refusals

CHECK: Final = "check"
_MAX_SHOWN: Final = 300
_NUL_ESCAPE: Final = b"\\u0000"


def read_body(raw: bytes, *, model: type[pydantic.BaseModel]) -> pydantic.BaseModel:
    """The body as its model; raises `Refusal` `malformed` (not JSON) or `invalid` (the field)."""
    if b"\0" in raw or _NUL_ESCAPE in raw:
        raise refusals.Refusal("invalid", "The body holds a NUL character, which no field takes.")
    try:
        return model.model_validate_json(raw)
    except pydantic.ValidationError as fault:
        raise _refusal_of(fault, where="body") from None


def read_query(
    fields: Sequence[tuple[str, str]], *, model: type[pydantic.BaseModel]
) -> pydantic.BaseModel:
    """The query as its model; raises `Refusal` `invalid` naming the field."""
    values: dict[str, Any] = {}
    for name, text in fields:
        known = model.model_fields.get(name)
        if known is not None and _is_list(known.annotation):
            values.setdefault(name, []).append(text)
        elif name in values:
            raise refusals.invalid(name, f"The query gives {name!r} twice.")
        else:
            values[name] = text
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as fault:
        raise _refusal_of(fault, where="query") from None


def split_check(
    fields: Sequence[tuple[str, str]], *, allowed: bool
) -> tuple[bool, list[tuple[str, str]]]:
    """Takes `check` out of the query where the route knows it; raises `Refusal` if misspelt."""
    rest = [field for field in fields if field[0] != CHECK]
    given = [value for name, value in fields if name == CHECK]
    if not allowed or not given:
        return False, list(fields)
    if len(given) > 1 or given[0] not in ("true", "false"):
        raise refusals.invalid(CHECK, "The query field check is true or false.")
    return given[0] == "true", rest


def _is_list(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_is_list(one) for one in typing.get_args(annotation))
    return origin in (list, tuple)


def _refusal_of(fault: pydantic.ValidationError, *, where: str) -> refusals.Refusal:
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return refusals.Refusal("malformed", "The body is not JSON.")
    field = ".".join(str(part) for part in first["loc"])[:_MAX_SHOWN]
    message = first["msg"].removeprefix("Value error, ")[:_MAX_SHOWN].rstrip(".")
    if not field:
        return refusals.Refusal("invalid", f"The {where}: {message}.")
    return refusals.invalid(field, f"{field}: {message}.")
