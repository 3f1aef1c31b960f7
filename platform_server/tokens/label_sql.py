"""Finding rows by their labels, which stand as JSON in a column, on either database.

For lists that a person looks at: every row of the list's order is read until a page is full.
"""

from collections.abc import Iterator, Sequence

from platform_server.store import contract
from wire_protocol import labels

Filter = tuple[str, str | None]
"""A key with the value wanted, or with None for any value."""


def conditions(
    filters: Sequence[Filter], *, dialect: contract.Dialect, under: str | None = None
) -> Iterator[tuple[str, list[object]]]:
    """A condition on the column `labels` for each filter, with the values for its `?`.

    `under` is another column, in whose JSON they stand as `labels`. Raises `ValueError` for a
    malformed key or value: the key becomes part of a JSON path, and its form is what makes that
    safe.
    """
    for key, value in filters:
        labels.check({key: value or ""})
        if dialect is contract.Dialect.SQLITE:
            way = f'$."{key}"' if under is None else f'$.labels."{key}"'
            found, bound = f"json_extract({under or 'labels'}, ?)", [way]
        else:
            there = "labels::jsonb" if under is None else f"{under}::jsonb -> 'labels'"
            found, bound = f"({there} ->> ?::text)", [key]
        if value is None:
            yield f"{found} IS NOT NULL", [*bound]
        else:
            yield f"{found} = ?", [*bound, value]
