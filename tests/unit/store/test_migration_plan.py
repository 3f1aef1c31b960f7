"""Migrations are split, typed and planned as one expects."""

import pytest

from platform_server.store import contract, migrations

KNOWN = tuple(migrations.Migration(version=n, name=f"m{n}", sql="") for n in (1, 2, 3))

PLANS = {
    "an empty store gets all": ([], [1, 2, 3]),
    "an older store gets the rest": ([(1, "0.1.0")], [2, 3]),
    "a store up to date gets nothing": ([(1, "0.1.0"), (2, "0.2.0"), (3, "0.2.0")], []),
}


@pytest.mark.parametrize(("applied", "expected"), PLANS.values(), ids=PLANS.keys())
def test_what_is_due(applied: list[tuple[int, str]], expected: list[int]) -> None:
    due = migrations.due(applied=applied, known=KNOWN)
    assert [migration.version for migration in due] == expected


def test_a_newer_store_is_refused_with_the_version_to_install() -> None:
    applied = [(1, "0.1.0"), (4, "0.9.0"), (5, "1.0.0")]
    with pytest.raises(contract.StoreNewer, match=r"install Enlist 1\.0\.0 or newer"):
        migrations.due(applied=applied, known=KNOWN)


def test_statements_are_split_at_their_ends_alone() -> None:
    sql = (
        "-- a story; with a semicolon\nCREATE TABLE a (b TEXT DEFAULT ';');\n\nDROP TABLE a; -- x\n"
    )
    assert migrations.statements(sql, dialect=contract.Dialect.SQLITE) == [
        "CREATE TABLE a (b TEXT DEFAULT ';')",
        "DROP TABLE a",
    ]


def test_half_a_statement_is_refused() -> None:
    with pytest.raises(ValueError, match="middle of a statement"):
        migrations.statements("CREATE TABLE a (", dialect=contract.Dialect.SQLITE)


@pytest.mark.parametrize("dialect", list(contract.Dialect))
def test_every_released_statement_is_whole_and_typed(dialect: contract.Dialect) -> None:
    for migration in migrations.all_migrations():
        found = migrations.statements(migration.sql, dialect=dialect)
        assert found
        for statement in found:
            assert statement.startswith(("CREATE ", "ALTER ", "DROP ", "INSERT ", "UPDATE "))
            assert "{int}" not in statement
            assert "{blob}" not in statement
