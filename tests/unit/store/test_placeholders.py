"""`?` becomes `$n`, and only where it is a placeholder."""

import pytest

from platform_server.store import placeholders

CASES = {
    "nothing to replace": ("SELECT 1", "SELECT 1"),
    "numbered in order": ("VALUES (?, ?, ?)", "VALUES ($1, $2, $3)"),
    "a text keeps its question mark": ("SELECT '?' WHERE a = ?", "SELECT '?' WHERE a = $1"),
    "a doubled quote does not end a text": ("SELECT 'it''s ?', ?", "SELECT 'it''s ?', $1"),
    "a quoted name keeps it": ('SELECT "a?b" = ?', 'SELECT "a?b" = $1'),
    "a comment keeps it": ("SELECT ? -- really?\n, ?", "SELECT $1 -- really?\n, $2"),
}


@pytest.mark.parametrize(("sql", "expected"), CASES.values(), ids=CASES.keys())
def test_placeholders_are_numbered(sql: str, expected: str) -> None:
    assert placeholders.numbered(sql) == expected
