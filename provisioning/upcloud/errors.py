"""What UpCloud's error codes mean.

Known limit: codes that UpCloud adds are judged by their status: a refusal stops the order with the
code shown, a failure of the service is unknown.
"""

from collections.abc import Mapping
from typing import Any, Final

from provisioning import answers, outcomes

RAISE_LIMIT: Final = "https://hub.upcloud.com/account/overview"
ADD_CREDIT: Final = "https://hub.upcloud.com/billing"

_OUTCOME = outcomes.Outcome
_TOPIC = outcomes.Topic


def _all(
    outcome: outcomes.Outcome, topic: outcomes.Topic, *codes: str, link: str | None = None
) -> dict[str, answers.Verdict]:
    return dict.fromkeys(codes, answers.Verdict(outcome=outcome, topic=topic, link=link))


TABLE: Final[Mapping[str, answers.Verdict]] = {
    **_all(_OUTCOME.AUTH_LOST, _TOPIC.AUTH, "AUTHENTICATION_FAILED"),
    **_all(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.RIGHTS,
        "ACCOUNT_FORBIDDEN",
        "ACTION_FORBIDDEN",
        "IP_ADDRESS_FORBIDDEN",
        "SERVER_FORBIDDEN",
        "STORAGE_FORBIDDEN",
        "TEMPLATE_FORBIDDEN",
    ),
    **_all(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.MONEY,
        "INSUFFICIENT_CREDITS",
        "TRIAL_PLAN",
        link=ADD_CREDIT,
    ),
    **_all(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.QUOTA,
        "IP_ADDRESS_LIMIT_REACHED",
        "MAXIOPS_STORAGE_LIMIT_REACHED",
        "SERVER_CORE_LIMIT_REACHED",
        "SERVER_IP_LIMIT_REACHED",
        "SERVER_MEMORY_LIMIT_REACHED",
        "STORAGE_LIMIT_REACHED",
        link=RAISE_LIMIT,
    ),
    **_all(_OUTCOME.NOT_DONE_RETRYABLE, _TOPIC.RATE, "SERVER_CREATING_LIMIT_REACHED"),
    **_all(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.CAPACITY,
        "IP_ADDRESS_RESOURCES_UNAVAILABLE",
        "SERVER_RESOURCES_UNAVAILABLE",
        "STORAGE_RESOURCES_UNAVAILABLE",
    ),
    **_all(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.STATE,
        "SERVER_STATE_ILLEGAL",
        "STORAGE_ATTACHED",
        "STORAGE_STATE_ILLEGAL",
    ),
    **_all(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.CATALOGUE,
        "PLAN_NOT_FOUND",
        "TEMPLATE_NOT_FOUND",
        "ZONE_MISMATCH",
        "ZONE_NOT_FOUND",
    ),
    **_all(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.INPUT,
        "HOSTNAME_INVALID",
        "INVALID_LABEL_KEY",
        "INVALID_LABEL_VALUE",
        "METADATA_DISABLED_ON_CLOUD-INIT",
        "TITLE_INVALID",
        "USER_DATA_INVALID",
    ),
    **_all(_OUTCOME.UNKNOWN, _TOPIC.NETWORK, "SERVICE_ERROR"),
}

GONE: Final = frozenset({"SERVER_NOT_FOUND", "STORAGE_NOT_FOUND", "IP_ADDRESS_NOT_FOUND"})
"""The clear word that there is no such thing."""


def read(body: Any) -> tuple[str, str]:
    """Code and message of `{"error": {error_code, error_message}}`; empty where it is none such."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    code, message = error.get("error_code"), error.get("error_message")
    if not isinstance(code, str) or not isinstance(message, str):
        return "", ""
    return code, message
