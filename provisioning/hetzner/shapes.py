"""Reading what an answer holds; whatever is not there makes the answer unreadable, not empty."""

from collections.abc import Callable
from typing import TypeVar

from provisioning import answers, contract

T = TypeVar("T")


def shaped(call: contract.ApiCall, read: Callable[[], T]) -> T:
    """What `read` makes of an answer; whatever is not there makes the answer unreadable."""
    try:
        return read()
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise answers.unanswered(call.name, "an answer without what it should hold") from None
