"""Fixtures and rules for every test.

`async def test_…` and `async def` fixtures (yielding or not) run on one event loop a test.
`store` and `store_url` run a test once on SQLite and once on PostgreSQL; where PostgreSQL
cannot be had, that half is skipped with the reason.
"""

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import postgres

if TYPE_CHECKING:
    from platform_server.store import contract


@pytest.fixture(autouse=True)
def async_runner() -> Iterator[asyncio.Runner]:
    """The test's own event loop; made when first used, closed after every fixture."""
    runner = asyncio.Runner()
    try:
        yield runner
    finally:
        runner.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests on the test's loop."""
    if not inspect.iscoroutinefunction(inspect.unwrap(pyfuncitem.obj)):
        return None
    runner = pyfuncitem.funcargs["async_runner"]
    assert isinstance(runner, asyncio.Runner)
    names = pyfuncitem._fixtureinfo.argnames
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Run `async def` fixtures (function scope) on the test's loop."""
    original = fixturedef.func
    driven: Callable[..., Any]
    if inspect.isasyncgenfunction(original):
        driven = _driven_generator(original, request.getfixturevalue("async_runner"))
    elif inspect.iscoroutinefunction(original):
        driven = _driven_coroutine(original, request.getfixturevalue("async_runner"))
    else:
        return (yield)
    fixturedef.func = driven  # type: ignore[misc]
    try:
        return (yield)
    finally:
        fixturedef.func = original  # type: ignore[misc]


def _driven_generator(original: Callable[..., Any], runner: asyncio.Runner) -> Callable[..., Any]:
    @functools.wraps(original)
    def driven(*args: Any, **kwargs: Any) -> Iterator[Any]:
        generator = original(*args, **kwargs)

        async def step() -> Any:
            return await anext(generator)

        async def finish() -> None:
            try:
                await anext(generator)
            except StopAsyncIteration:
                return
            raise RuntimeError(f"{original.__name__} yielded twice")

        yield runner.run(step())
        runner.run(finish())

    return driven


def _driven_coroutine(original: Callable[..., Any], runner: asyncio.Runner) -> Callable[..., Any]:
    def driven(*args: Any, **kwargs: Any) -> Any:
        return runner.run(original(*args, **kwargs))

    functools.update_wrapper(driven, original)
    return driven


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """One real PostgreSQL for this pytest process."""
    server_cm = postgres.running_server()
    try:
        server = server_cm.__enter__()
    except postgres.Unavailable as reason:
        pytest.skip(f"PostgreSQL cannot be had: {reason}")
    try:
        yield server
    finally:
        server_cm.__exit__(None, None, None)


@pytest.fixture
def new_database(postgres_server: postgres.Server) -> Iterator[Callable[[], str]]:
    """A function that makes a fresh PostgreSQL database and returns its URL."""
    urls: list[str] = []

    def make() -> str:
        urls.append(postgres_server.new_database())
        return urls[-1]

    yield make
    for url in urls:
        postgres_server.drop_database(url)


@pytest.fixture
def postgres_url(new_database: Callable[[], str]) -> str:
    """The URL of a fresh PostgreSQL database."""
    return new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_kind(request: pytest.FixtureRequest) -> str:
    """The store a test runs on: once on each."""
    return str(request.param)


@pytest.fixture
def store_url(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """`--database-url` of a fresh, empty store of either kind."""
    if store_kind == "sqlite":
        return f"sqlite:///{tmp_path}/enlist.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def store(store_url: str) -> "AsyncIterator[contract.Store]":
    """An open, migrated store of either kind."""
    from platform_server.store import opening  # noqa: PLC0415 - most tests need no store

    opened = await opening.open_store(store_url)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> None:
    """A developer's own ENLIST_ variables decide nothing in the tests."""
    for name in [name for name in os.environ if name.startswith("ENLIST_")]:
        del os.environ[name]
