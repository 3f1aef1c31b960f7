"""What Google's error codes mean, those of an answer and those of a finished operation.

An answer may carry three words for one error (a status, a reason, a reason of its details); the
first of them that is known here counts, the closest first. Orders are accepted before they are
possible: a sold-out zone is told by the operation, with a list of zones that have room.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import answers, outcomes

_OUTCOME = outcomes.Outcome
_TOPIC = outcomes.Topic
_QUOTAS: Final = "https://console.cloud.google.com/iam-admin/quotas"
_BILLING: Final = "https://console.cloud.google.com/billing"
_SERVICES: Final = "https://console.cloud.google.com/apis/library/compute.googleapis.com"

GONE: Final = frozenset({"notFound", "NOT_FOUND"})
THERE_ALREADY: Final = frozenset({"alreadyExists", "ALREADY_EXISTS", "RESOURCE_ALREADY_EXISTS"})


def _rows(
    outcome: outcomes.Outcome, topic: outcomes.Topic, *codes: str, link: str | None = None
) -> dict[str, answers.Verdict]:
    return dict.fromkeys(codes, answers.Verdict(outcome=outcome, topic=topic, link=link))


TABLE: Final[Mapping[str, answers.Verdict]] = {
    **_rows(_OUTCOME.AUTH_LOST, _TOPIC.AUTH, "authError", "UNAUTHENTICATED", "required"),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.RIGHTS,
        "forbidden",
        "PERMISSION_DENIED",
        "IAM_PERMISSION_DENIED",
        "PERMISSIONS_ERROR",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.RIGHTS,
        "accessNotConfigured",
        "SERVICE_DISABLED",
        link=_SERVICES,
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.MONEY,
        "BILLING_DISABLED",
        "billingNotEnabled",
        link=_BILLING,
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.QUOTA,
        "QUOTA_EXCEEDED",
        "quotaExceeded",
        "LIMIT_EXCEEDED",
        "limitExceeded",
        link=_QUOTAS,
    ),
    **_rows(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.CAPACITY,
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "IP_SPACE_EXHAUSTED",
        "IP_SPACE_EXHAUSTED_WITH_DETAILS",
        "stockout",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.CATALOGUE,
        "notFound",
        "NOT_FOUND",
        "RESOURCE_NOT_FOUND",
        "UNSUPPORTED_OPERATION",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.INPUT,
        "invalid",
        "invalidParameter",
        "INVALID_ARGUMENT",
        "badRequest",
        "INVALID_FIELD_VALUE",
        "INVALID_USAGE",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.STATE,
        "resourceNotReady",
        "RESOURCE_NOT_READY",
        "resourceInUseByAnotherResource",
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
        "RESOURCE_OPERATION_IN_PROGRESS",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.RATE,
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "RESOURCE_EXHAUSTED",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.PROTECTED,
        "conditionNotMet",  # an organisation's policy, or a protection against deleting
        "CONDITION_NOT_MET",
        "FAILED_PRECONDITION",
    ),
    **_rows(_OUTCOME.EXISTS_FOREIGN, _TOPIC.STATE, *THERE_ALREADY),
    **_rows(
        _OUTCOME.UNKNOWN,
        _TOPIC.NETWORK,
        "backendError",
        "internalError",
        "INTERNAL",
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
    ),
}


def read(body: Any) -> tuple[str, str]:
    """Code and message of a refusal."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    words = [
        *(one.get("reason") for one in _objects(error, "details")),
        *(one.get("reason") for one in _objects(error, "errors")),
        error.get("status"),
    ]
    codes = [word for word in words if isinstance(word, str)]
    known = next((code for code in codes if code in TABLE), None)
    message = error.get("message")
    return known or next(iter(codes), ""), message if isinstance(message, str) else ""


def of_an_operation(what: str, operation: Mapping[str, Any]) -> outcomes.Fault | None:
    """The fault of a finished operation; None where it went well.

    Its hints are the zones that Google says have room.
    """
    error = operation.get("error")
    told = list(_objects(error, "errors")) if isinstance(error, dict) else []
    if not told:
        return None
    first = next((one for one in told if one.get("code") in TABLE), told[0])
    fault = answers.failed(
        what, code=str(first.get("code", "")), message=str(first.get("message", "")), table=TABLE
    )
    fault.hints = tuple(_zones(told))
    fault.link = next(iter(_links(told)), fault.link)
    return fault


def _zones(told: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for one in told:
        for detail in _objects(one, "errorDetails"):
            about = detail.get("errorInfo")
            more = about.get("metadatas") if isinstance(about, dict) else None
            names = more.get("zonesAvailable") if isinstance(more, dict) else None
            if isinstance(names, str):
                yield from (name.strip() for name in names.split(",") if name.strip())


def _links(told: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for one in told:
        for detail in _objects(one, "errorDetails"):
            about = detail.get("help")
            for link in _objects(about, "links") if isinstance(about, dict) else ():
                url = link.get("url")
                if isinstance(url, str) and url.startswith("https://"):
                    yield url


def _objects(thing: Any, name: str) -> Iterable[dict[str, Any]]:
    told = thing.get(name) if isinstance(thing, dict) else None
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
