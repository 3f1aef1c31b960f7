"""One builder, two twins: how a method of the sync and of the async client comes from one function.

    class Nodes(methods.Noun):
        get = methods.Sync(get)

    class AsyncNodes(methods.AsyncNoun):
        get = methods.Async(get)

Both keep the builder's signature and docstring, for readers, editors and mypy alike. `Items` and
`AsyncItems` follow a list's cursor to its end. No rule and no I/O stands here.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from enlist import calls

P = ParamSpec("P")
T = TypeVar("T")
ItemT = TypeVar("ItemT")


class Page(Protocol):
    """One page of a list."""

    @property
    def next_cursor(self) -> str | None:
        """Where the next page begins; None on the last."""
        ...


PageT = TypeVar("PageT", bound=Page)


class Sender(Protocol):
    """What carries out a call and waits for it."""

    def send(self, call: calls.Call[T]) -> T:
        """Gives the typed answer or raises an error of `errors.py`."""
        ...


class AsyncSender(Protocol):
    """The same for asyncio."""

    async def send(self, call: calls.Call[T]) -> T:
        """Gives the typed answer or raises an error of `errors.py`."""
        ...


class Noun:
    """The calls about one noun, such as `client.nodes`."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender


class AsyncNoun:
    """The calls about one noun, such as `client.nodes`, to be awaited."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender


class Sync(Generic[P, T]):
    """The method that sends what the builder builds."""

    def __init__(self, build: Callable[P, calls.Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(self, noun: Noun, owner: type[Noun]) -> Callable[P, T]:
        """Binds it to the noun's client."""

        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return noun.sender.send(self.build(*args, **kwargs))

        return _named(method, self.build)


class Async(Generic[P, T]):
    """The coroutine method that sends what the builder builds."""

    def __init__(self, build: Callable[P, calls.Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(
        self, noun: AsyncNoun, owner: type[AsyncNoun]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Binds it to the noun's client."""

        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await noun.sender.send(self.build(*args, **kwargs))

        return _named(method, self.build)


class Items(Generic[P, PageT, ItemT]):
    """The method that yields every entry of a list, page after page."""

    def __init__(
        self, build: Callable[P, calls.Call[PageT]], *, of: Callable[[PageT], Sequence[ItemT]]
    ) -> None:
        self.build = build
        self.of = of

    def __get__(self, noun: Noun, owner: type[Noun]) -> Callable[P, Iterator[ItemT]]:
        """Binds it to the noun's client."""

        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[ItemT]:
            call = self.build(*args, **kwargs)
            while True:
                page = noun.sender.send(call)
                yield from self.of(page)
                if page.next_cursor is None:
                    return
                call = calls.after(call, cursor=page.next_cursor)

        return _named(method, self.build)


class AsyncItems(Generic[P, PageT, ItemT]):
    """The method that yields every entry of a list, page after page, under asyncio."""

    def __init__(
        self, build: Callable[P, calls.Call[PageT]], *, of: Callable[[PageT], Sequence[ItemT]]
    ) -> None:
        self.build = build
        self.of = of

    def __get__(self, noun: AsyncNoun, owner: type[AsyncNoun]) -> Callable[P, AsyncIterator[ItemT]]:
        """Binds it to the noun's client."""

        async def method(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[ItemT]:
            call = self.build(*args, **kwargs)
            while True:
                page = await noun.sender.send(call)
                for item in self.of(page):
                    yield item
                if page.next_cursor is None:
                    return
                call = calls.after(call, cursor=page.next_cursor)

        return _named(method, self.build)


MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def _named(method: MethodT, build: Callable[..., Any]) -> MethodT:
    method.__doc__ = build.__doc__
    method.__name__ = build.__name__.rstrip("_")
    return method
