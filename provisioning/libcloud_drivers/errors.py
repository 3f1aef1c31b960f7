"""What refusals of the long tail mean, by status and by the words that they are known to use.

Linode and Vultr tell no codes at all and OpenStack's are as coarse as a status; so the message is
read, by the same patterns for all of them.

Known limit: a message that fits no pattern is judged by its status.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from provisioning import answers, outcomes

_OUTCOME = outcomes.Outcome
_TOPIC = outcomes.Topic

_BY_MESSAGE: Final = (
    (
        (
            r"quota|limit (is |has been )?(reached|exceeded)|exceed(s|ed)? .*limit"
            r"|maximum number of|account limit"
        ),
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.QUOTA),
    ),
    (
        r"payment|billing|credit|past due|funds",
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.MONEY),
    ),
    (
        r"no valid host|capacity|sold out|out of stock|currently unavailable|not enough hosts",
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.CAPACITY),
    ),
    (
        r"\bbusy\b|locked|in progress|task_state|vm_state|currently (locked|installing)",
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.STATE),
    ),
    (
        (
            r"(invalid|unknown|no such|not a valid|could not find|can not find) .*"
            r"(plan|type|flavor|image|region|os_id|os)\b|not available in"
        ),
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.CATALOGUE),
    ),
)
_JUDGED_BY_MESSAGE: Final = frozenset({400, 402, 403, 409, 412, 413, 422})
_BY_STATUS: Final = {
    402: answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.MONEY),
    409: answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.STATE),
    412: answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.STATE),
    413: answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.RATE),
}


def read(body: Any) -> tuple[str, str]:
    """Code and message, in any of the three forms; empty where the body is none of them."""
    if not isinstance(body, dict):
        return "", ""
    errors = body.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):  # Linode
        return "", "; ".join(_linode(one) for one in errors if isinstance(one, dict))
    if isinstance(body.get("error"), str):  # Vultr
        return "", str(body["error"])
    for code, inside in body.items():  # OpenStack: {"itemNotFound": {"message", "code"}}
        if isinstance(inside, dict) and isinstance(inside.get("message"), str):
            return (str(code) if code != "error" else str(inside.get("title", ""))), str(
                inside["message"]
            )
    return "", ""


def judging(raise_limit: str) -> Callable[[answers.Refusal], Mapping[str, answers.Verdict]]:
    """How refusals of a provider are judged; `raise_limit` is where its limits are raised."""

    def judge(refusal: answers.Refusal) -> Mapping[str, answers.Verdict]:
        verdict = _verdict(refusal)
        if verdict is None:
            return {}
        if verdict.topic is _TOPIC.QUOTA:
            verdict = dataclasses.replace(verdict, link=raise_limit)
        return {refusal.code: verdict}

    return judge


def is_gone(fault: outcomes.Fault) -> bool:
    """Whether this is the clear word that there is no such machine."""
    return fault.code in {"404", "itemNotFound"}


def _linode(one: Mapping[str, Any]) -> str:
    reason, field = str(one.get("reason", "")), one.get("field")
    return f"{reason} ({field})" if field else reason


def _verdict(refusal: answers.Refusal) -> answers.Verdict | None:
    if refusal.status in _JUDGED_BY_MESSAGE:
        for pattern, verdict in _BY_MESSAGE:
            if re.search(pattern, refusal.message, re.IGNORECASE):
                return verdict
    return _BY_STATUS.get(refusal.status)
