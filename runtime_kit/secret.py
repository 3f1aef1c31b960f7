"""A text that prints as dots.

A secret travels inside this wrapper, so that no log line, traceback or `repr` shows it by
accident. Known limit: it guards against mistakes, not against code that calls `reveal`.
"""

import hmac


class Secret:
    """Holds one secret text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that must send or store it."""
        return self._text

    def matches(self, other: "Secret") -> bool:
        """Whether both hold the same text, in a time that does not depend on where they differ."""
        return hmac.compare_digest(self._text.encode(), other.reveal().encode())

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other)

    def __hash__(self) -> int:
        return hash(("Secret", self._text))

    def __repr__(self) -> str:
        return "Secret('…')"

    def __str__(self) -> str:
        return "••••"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("A secret is not pickled: reveal it where it is really needed.")
