"""How a bench says what it found: one JSON document with `-o json`, a short table otherwise."""

import argparse
import dataclasses
import json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, what it means, and the bound it is held against (or none)."""

    name: str
    value: float
    unit: str
    meaning: str
    at_most: float | None = None


def wants_json(arguments: list[str] | None = None) -> bool:
    """Reads the one option every bench has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return bool(parser.parse_args(arguments).output == "json")


def show(bench: str, figures: list[Figure], *, as_json: bool) -> None:
    """Prints the figures; never judges them, since a noisy machine is no failed test."""
    if as_json:
        print(
            json.dumps(
                {"bench": bench, "figures": [dataclasses.asdict(figure) for figure in figures]}
            )
        )
        return
    for figure in figures:
        bound = "" if figure.at_most is None else f"  (at most {figure.at_most:g})"
        print(f"{figure.name:<28}{figure.value:>12.3f} {figure.unit:<8}{bound}")
        print(f"    {figure.meaning}")
