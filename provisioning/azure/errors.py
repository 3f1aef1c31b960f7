"""What Azure's error codes mean, those of an answer and those told by a finished operation.

The code counts, not the status: a quota is a 409 here, a race between our own calls a 429. What is
not in the table is judged by `answers`.
"""

from collections.abc import Mapping
from typing import Any, Final

from provisioning import answers, outcomes

_OUTCOME = outcomes.Outcome
_TOPIC = outcomes.Topic
_QUOTAS: Final = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"
_ROLES: Final = "https://learn.microsoft.com/azure/role-based-access-control/troubleshooting"
_REGISTER: Final = (
    "https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/"
    "error-register-resource-provider"
)

GONE: Final = frozenset({"ResourceNotFound", "NotFound", "ResourceGroupNotFound"})
"""Clear words that a thing is not there. With its resource group everything in it is gone."""
THERE_ALREADY: Final = "PreconditionFailed"
SLOW_TO_BOOT: Final = "OSProvisioningTimedOut"
"""The machine is there and may come up yet: enrolling decides, not this."""


def _rows(
    outcome: outcomes.Outcome, topic: outcomes.Topic, *codes: str, link: str | None = None
) -> dict[str, answers.Verdict]:
    verdict = answers.Verdict(outcome=outcome, topic=topic, link=link)
    return dict.fromkeys(codes, verdict)


TABLE: Final[Mapping[str, answers.Verdict]] = {
    **_rows(
        _OUTCOME.AUTH_LOST,
        _TOPIC.AUTH,
        "InvalidAuthenticationToken",
        "ExpiredAuthenticationToken",
        "AuthenticationFailed",
        "AuthenticationFailedMissingToken",
        "InvalidAuthenticationTokenTenant",
        "InvalidAuthenticationTokenAudience",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.RIGHTS,
        "AuthorizationFailed",
        "LinkedAuthorizationFailed",
        "RequestDisallowedByPolicy",
        link=_ROLES,
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.RIGHTS,
        "MissingSubscriptionRegistration",
        "SubscriptionNotRegistered",
        link=_REGISTER,
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.MONEY,
        "ReadOnlyDisabledSubscription",
        "DisallowedOperation",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.QUOTA,
        "QuotaExceeded",
        "OperationNotAllowed",  # "... exceeding approved ... cores quota"; see `of_a_delete`
        "PublicIPCountLimitReached",
        "PublicIPAddressCountLimitReached",
        "StandardSkuPublicIPCountLimitReached",
        "NetworkInterfaceCountLimitReached",
        "NetworkSecurityGroupCountLimitReached",
        "ResourceQuotaExceeded",
        link=_QUOTAS,
    ),
    **_rows(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.CAPACITY,
        "SkuNotAvailable",
        "AllocationFailed",
        "ZonalAllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.CATALOGUE,
        "PlatformImageNotFound",
        "ImageNotFound",
        "InvalidImageReference",
        "VMSizeNotSupported",
        "LocationNotAvailableForResourceType",
        "NoRegisteredProviderFound",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_PERMANENT,
        _TOPIC.INPUT,
        "InvalidParameter",
        "InvalidRequestContent",
        "InvalidRequestFormat",
        "InvalidResourceName",
        "InvalidResourceReference",
        "PropertyChangeNotAllowed",
        "ResourceNotFound",
        "ResourceGroupNotFound",
        "SubscriptionNotFound",
        "InvalidSubscriptionId",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.STATE,
        "AnotherOperationInProgress",
        "OperationPreempted",
        "RetryableError",
        "RetryableErrorDueToAnotherOperation",  # a 429 that is no throttling
        "ReferencedResourceNotProvisioned",
        "Conflict",
        "NicReservedForAnotherVm",
        "NicInUse",
        "NetworkInterfaceInUse",
        "PublicIPAddressCannotBeDeleted",
        "PublicIPAddressInUse",
        "InUseNetworkSecurityGroupCannotBeDeleted",
        "NetworkSecurityGroupInUse",
        "PrivateIPAddressIsAllocated",
        "AttachDiskWhileBeingDetached",
        "DiskBlobAlreadyInUseByAnotherDisk",
    ),
    **_rows(
        _OUTCOME.NOT_DONE_RETRYABLE,
        _TOPIC.RATE,
        "TooManyRequests",
        "SubscriptionRequestsThrottled",
        "ResourceCollectionRequestsThrottled",
    ),
    **_rows(_OUTCOME.NOT_DONE_PERMANENT, _TOPIC.PROTECTED, "ScopeLocked"),
    **_rows(_OUTCOME.EXISTS_FOREIGN, _TOPIC.STATE, THERE_ALREADY),
    **_rows(
        _OUTCOME.UNKNOWN,
        _TOPIC.NETWORK,
        "InternalServerError",
        "InternalExecutionError",
        "InternalOperationError",
        "ServerTimeout",
        "GatewayTimeout",
        "ServiceUnavailable",
    ),
}


def read(body: Any) -> tuple[str, str]:
    """Code and message of a refusal, whichever of ARM's two forms it has."""
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    code, message = error.get("code"), error.get("message")
    return (code if isinstance(code, str) else ""), (message if isinstance(message, str) else "")


def of_a_delete(fault: outcomes.Fault) -> outcomes.Fault:
    """Deleting meets no quota: there the same word means that the thing is in use yet."""
    if fault.code != "OperationNotAllowed":
        return fault
    return outcomes.Fault(
        str(fault),
        outcome=_OUTCOME.NOT_DONE_RETRYABLE,
        topic=_TOPIC.STATE,
        code=fault.code,
        retry_after=fault.retry_after,
    )


def of_an_operation(what: str, body: Any) -> outcomes.Fault:
    """The fault of an operation that says itself that it has failed or was canceled."""
    code, message = read(body)
    return answers.failed(what, code=code, message=message, table=TABLE)
