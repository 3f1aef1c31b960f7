"""Money for people: `0.0060 EUR/h, about 4.38 EUR a month`; JSON keeps millionths."""

from typing import Any, Final

from operator_cli import columns

_MICROS: Final = 1_000_000
_HOURS_A_MONTH: Final = 730


def hourly(price: Any) -> str:
    """A price by the hour, marked where it is an estimate."""
    if not price:
        return columns.NOTHING
    shown = f"{_number(price['hourly_micros'], digits=4)} {columns.clean(price['currency'])}/h"
    return f"~{shown}" if price.get("as_of") else shown


def full(price: Any) -> str:
    """A price by the hour and by the month, with where it is from."""
    if not price:
        return "price unknown"
    month = price.get("monthly_cap_micros") or price["hourly_micros"] * _HOURS_A_MONTH
    currency = columns.clean(price["currency"])
    shown = f"{hourly(price)}, about {_number(month, digits=2)} {currency} a month"
    return f"{shown} (an estimate of {price['as_of']})" if price.get("as_of") else shown


def amount(micros: int | None, currency: object) -> str:
    """An amount, to the cent."""
    if micros is None:
        return columns.NOTHING
    return f"{_number(micros, digits=2)} {columns.clean(currency)}"


def rate(micros: int | None, currency: object) -> str:
    """An amount by the hour."""
    if micros is None:
        return columns.NOTHING
    return f"{_number(micros, digits=4)} {columns.clean(currency)}/h"


def parse(text: str) -> int:
    """Reads `0.05` as millionths; raises `ValueError` with the right form."""
    whole, dot, part = text.strip().partition(".")
    digits = whole + part
    if not digits.isascii() or not digits.isdigit() or len(part) > 6 or len(whole) > 9:
        raise ValueError(f"{text[:40]!r} is not an amount of money: write 12 or 0.05.")
    del dot
    return int(whole or "0") * _MICROS + int(part.ljust(6, "0") or "0")


def _number(micros: int, *, digits: int) -> str:
    return f"{micros / _MICROS:.{digits}f}"
