"""Rewrites `?` into PostgreSQL's `$1`, `$2`, …; pure, and done once a statement.

Known limit: it knows quoted texts, quoted names and `--` comments, which is all our SQL uses;
dollar quoting, block comments and the `?` operators of jsonb are not for statements here.
"""

import functools
import itertools
import re

STATEMENTS_KEPT = 1024
"""Far more than the Platform has; a bound against statements built from input."""

_PIECE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|\?")


@functools.lru_cache(maxsize=STATEMENTS_KEPT)
def numbered(sql: str) -> str:
    """The statement with its placeholders numbered from 1."""
    numbers = itertools.count(1)
    return _PIECE.sub(lambda piece: f"${next(numbers)}" if piece[0] == "?" else piece[0], sql)
