"""Small readings that the dialects share.

Known limit: times without a zone are taken for UTC, which is what all three of them write.
"""

import base64
import datetime
from typing import Any

from provisioning import answers, contract


def body(call: contract.ApiCall, told: Any) -> dict[str, Any]:
    """A success's JSON object.

    Raises:
        outcomes.Fault: it is none, so it is no readable answer.
    """
    if not isinstance(told, dict):
        raise answers.unanswered(call.name, "a success that is no JSON object")
    return told


def within(call: contract.ApiCall, told: Any, key: str) -> dict[str, Any]:
    """What a success holds under this key.

    Raises:
        outcomes.Fault: it does not hold it.
    """
    return body(call, body(call, told).get(key))


def moment(told: Any) -> datetime.datetime | None:
    """A time; None where it is none."""
    if not isinstance(told, str):
        return None
    try:
        read = datetime.datetime.fromisoformat(told)
    except ValueError:
        return None
    return read if read.tzinfo is not None else read.replace(tzinfo=datetime.UTC)


def as_sent(first_boot: str) -> tuple[str, str]:
    """First-boot data as it is and as libcloud sends it: what no sentence may repeat."""
    return first_boot, base64.b64encode(first_boot.encode()).decode()
