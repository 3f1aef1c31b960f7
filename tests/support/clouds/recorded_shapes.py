"""What recorded JSON looks like, place by place, for the referees that stand on recordings.

A place is a path like `server.labels.label[].key`; a shape tells the types that were seen there.

Known limit: types and presence alone; whether a value could be one of the provider's is not told.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

Shape = Mapping[str, frozenset[str]]


def places(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every place in a document below its top, with the value there."""
    if at:
        yield at, value
    if isinstance(value, dict):
        for name, one in value.items():
            yield from places(one, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for one in value:
            yield from places(one, f"{at}[]")


def leaves(value: Any) -> Iterator[tuple[str, str]]:
    """The places that hold neither a list nor an object, with the types of what is there."""
    for at, one in places(value):
        if not isinstance(one, dict | list):
            yield at, type(one).__name__


def known(bodies: Iterable[Any]) -> Shape:
    """The types that were seen at each place."""
    found: dict[str, set[str]] = {}
    for body in bodies:
        for at, one in places(body):
            found.setdefault(at, set()).add(type(one).__name__)
    return {at: frozenset(words) for at, words in found.items()}


def strangers(document: Any, shape: Shape, *, allowed: Collection[str]) -> Iterator[str]:
    """What stands in a document and was never recorded; `allowed`: places, with all below them."""
    beginnings = tuple(f"{one}{mark}" for one in allowed for mark in (".", "["))
    for at, word in dict.fromkeys((at, type(one).__name__) for at, one in places(document)):
        if at in shape:
            if word not in shape[at]:
                yield f"{at} is a {word}, recorded {set(shape[at])}"
        elif not (word in {"dict", "list"} or at in allowed or at.startswith(beginnings)):
            yield f"{at} was never recorded"


def common(bodies: Iterable[Any]) -> Mapping[str, frozenset[str]]:
    """By the place of an object (the top is ""), the keys that every recorded one there has."""
    found: dict[str, frozenset[str]] = {}
    for body in bodies:
        for at, keys in _objects(body):
            found[at] = found.get(at, keys) & keys
    return found


def missing(document: Any, needed: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """What an object of this document lacks and every recorded one has."""
    for at, keys in _objects(document):
        for name in sorted(needed.get(at, frozenset()) - keys):
            yield f"{at}.{name} is missing" if at else f"{name} is missing"


def _objects(document: Any) -> Iterator[tuple[str, frozenset[str]]]:
    for at, one in (("", document), *places(document)):
        if isinstance(one, dict):
            yield at, frozenset(one)
