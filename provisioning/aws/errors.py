"""What EC2's and STS's codes mean. Status codes mean little here: sold out is answered with 500.

Known limit: a code that is in no table is judged by its status alone, as everywhere: 4xx is
permanent with the raw code kept, 5xx is unknown.
"""

from collections.abc import Mapping
from typing import Final

import botocore.exceptions

from provisioning import answers, outcomes
from runtime_kit import clock as clock_kit

QUOTAS_LINK: Final = "https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
DRY_RUN_PASSED: Final = "DryRunOperation"
NOT_THERE: Final = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
OF_TERMINATED: Final = "IdempotentInstanceTerminated"
OTHER_PARAMETERS: Final = "IdempotentParameterMismatch"

_O, _T = outcomes.Outcome, outcomes.Topic


def _rows(
    outcome: outcomes.Outcome, topic: outcomes.Topic, *codes: str, link: str | None = None
) -> dict[str, answers.Verdict]:
    return dict.fromkeys(codes, answers.Verdict(outcome=outcome, topic=topic, link=link))


TABLE: Final[Mapping[str, answers.Verdict]] = {
    **_rows(
        _O.AUTH_LOST,
        _T.AUTH,
        "AuthFailure",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "RequestExpired",  # of the credential, or of the request: then the clock explains it
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        *EXPIRED,
    ),
    **_rows(
        _O.NOT_DONE_PERMANENT,
        _T.RIGHTS,
        "AccessDenied",
        "AccessDeniedException",
        "OptInRequired",
        "UnauthorizedOperation",
    ),
    **_rows(_O.NOT_DONE_PERMANENT, _T.MONEY, "Blocked"),
    **_rows(
        _O.NOT_DONE_PERMANENT,
        _T.QUOTA,
        "AddressLimitExceeded",
        "AttachmentLimitExceeded",
        "InstanceLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
        "MaxIOPSLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded",
        "SecurityGroupLimitExceeded",
        "SecurityGroupsPerInterfaceLimitExceeded",
        "SnapshotLimitExceeded",
        "TagLimitExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
        link=QUOTAS_LINK,
    ),
    **_rows(
        _O.NOT_DONE_RETRYABLE,
        _T.QUOTA,
        "ConcurrentSnapshotLimitExceeded",
        "ConcurrentTagAccess",
        link=QUOTAS_LINK,
    ),
    **_rows(
        _O.NOT_DONE_RETRYABLE,
        _T.CAPACITY,
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientVolumeCapacity",
        "ReservationCapacityExceeded",
    ),
    **_rows(_O.NOT_DONE_PERMANENT, _T.CAPACITY, "Unsupported", "UnsupportedOperation"),
    **_rows(
        _O.NOT_DONE_PERMANENT,
        _T.CATALOGUE,
        "InvalidAMIID.Malformed",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidInstanceType",
        "InvalidSubnetID.NotFound",
        "InvalidVpcID.NotFound",
    ),
    **_rows(
        _O.NOT_DONE_PERMANENT,
        _T.INPUT,
        "InvalidParameter",
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "InvalidUserData.Malformed",
        "MissingParameter",
        "ValidationError",
    ),
    **_rows(
        _O.NOT_DONE_RETRYABLE,
        _T.RATE,
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "RequestLimitExceeded",  # 503, and nothing was done
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    **_rows(
        _O.NOT_DONE_RETRYABLE,
        _T.STATE,
        "DependencyViolation",
        "IncorrectInstanceState",
        "IncorrectState",
        "InvalidIPAddress.InUse",
        "InvalidInstanceID.NotFound",  # not visible yet, or gone: who asks decides
        "InvalidSnapshot.InUse",
        "PendingVerification",
        "Resource.AlreadyAssociated",
        "ResourceInUse",
        "VolumeInUse",
    ),
    **_rows(_O.NOT_DONE_PERMANENT, _T.PROTECTED, "OperationNotPermitted"),
    **_rows(_O.NOT_DONE_PERMANENT, _T.STATE, OF_TERMINATED),
    **_rows(_O.UNKNOWN, _T.STATE, OTHER_PARAMETERS),
    **_rows(
        _O.UNKNOWN,
        _T.NETWORK,
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "Unavailable",
    ),
}

TRUST_TABLE: Final[Mapping[str, answers.Verdict]] = {
    **TABLE,
    **_rows(
        _O.AUTH_LOST,
        _T.AUTH,
        "AccessDenied",  # the role does not trust us
        "ExpiredTokenException",  # of the assertion: it is made anew for the next try
        "IDPRejectedClaim",
        "InvalidIdentityToken",
        "RegionDisabledException",
    ),
    **_rows(_O.NOT_DONE_RETRYABLE, _T.NETWORK, "IDPCommunicationError"),
    **_rows(_O.NOT_DONE_PERMANENT, _T.INPUT, "MalformedPolicyDocument", "PackedPolicyTooLarge"),
}
"""For taking on a role, where a refusal means that the connection has no credential."""

_UNSENT = (
    botocore.exceptions.ConnectTimeoutError,
    botocore.exceptions.EndpointConnectionError,
    botocore.exceptions.ProxyConnectionError,
)
_NO_CREDENTIAL = (
    botocore.exceptions.CredentialRetrievalError,
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.ProfileNotFound,
    botocore.exceptions.TokenRetrievalError,
)
_OURS = (
    botocore.exceptions.InvalidRegionError,
    botocore.exceptions.NoRegionError,
    botocore.exceptions.ParamValidationError,
)


def refusal_of(error: botocore.exceptions.ClientError) -> answers.Refusal:
    """The answer as it came; a page of some proxy has only its status for a code."""
    said, meta = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code = str(said.get("Code", ""))
    return answers.Refusal(
        status=int(meta.get("HTTPStatusCode", 0)),
        code=code,
        message=str(said.get("Message", "")),
        headers={name.lower(): value for name, value in meta.get("HTTPHeaders", {}).items()},
        is_readable=bool(code) and not code.isdecimal(),
    )


def fault_of(
    error: Exception,
    *,
    what: str,
    clock: clock_kit.Clock,
    hide: tuple[str, ...] = (),
    table: Mapping[str, answers.Verdict] = TABLE,
) -> outcomes.Fault:
    """The fault for whatever botocore raised. Texts in `hide` come back in no sentence."""
    if isinstance(error, botocore.exceptions.ClientError):
        return answers.fault_of(
            refusal_of(error),
            what=what,
            table=table,
            clock=clock,
            is_time_bound=True,
            hide=hide,
        )
    name = type(error).__name__
    if isinstance(error, _UNSENT):
        return answers.unreachable(what, name)
    if isinstance(error, _NO_CREDENTIAL):
        return outcomes.Fault(
            f"{what} was not sent: this host has no identity at AWS that can be used ({name}).",
            outcome=_O.AUTH_LOST,
            topic=_T.AUTH,
            code=name,
        )
    if isinstance(error, _OURS):
        return outcomes.Fault(
            f"{what} was not sent: EC2's own description does not allow this request ({name}).",
            outcome=_O.NOT_DONE_PERMANENT,
            topic=_T.INPUT,
            code=name,
        )
    return answers.unanswered(what, name)
