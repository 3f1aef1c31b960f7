"""What Hetzner Cloud's error codes mean (the codes are those of its own Go client's error.go).

Its status codes mislead: a quota is a 403. So the code alone decides; a new code falls to the rule
for all providers, an unmapped 4xx permanent, an unmapped 5xx unknown.
"""

from collections.abc import Mapping
from typing import Final

from provisioning.answers import Verdict
from provisioning.outcomes import Outcome, Topic

_LIMITS: Final = "https://console.hetzner.com/limits"
_TOKENS: Final = "https://console.hetzner.com/projects"

_RETRY: Final = Outcome.NOT_DONE_RETRYABLE
_NEVER: Final = Outcome.NOT_DONE_PERMANENT

TABLE: Final[Mapping[str, Verdict]] = {
    # the credential
    "unauthorized": Verdict(outcome=Outcome.AUTH_LOST, topic=Topic.AUTH, link=_TOKENS),
    "forbidden": Verdict(outcome=Outcome.AUTH_LOST, topic=Topic.RIGHTS, link=_TOKENS),
    "token_readonly": Verdict(outcome=Outcome.AUTH_LOST, topic=Topic.RIGHTS, link=_TOKENS),
    # the account
    "resource_limit_exceeded": Verdict(outcome=_NEVER, topic=Topic.QUOTA, link=_LIMITS),
    # sold out: another type or location may do, or the same in some minutes
    "resource_unavailable": Verdict(outcome=_RETRY, topic=Topic.CAPACITY),
    "placement_error": Verdict(outcome=_RETRY, topic=Topic.CAPACITY),
    "no_space_left_in_location": Verdict(outcome=_RETRY, topic=Topic.CAPACITY),
    # what was asked for
    "invalid_input": Verdict(outcome=_NEVER, topic=Topic.INPUT),
    "json_error": Verdict(outcome=_NEVER, topic=Topic.INPUT),
    "invalid_server_type": Verdict(outcome=_NEVER, topic=Topic.CATALOGUE),
    "unsupported_error": Verdict(outcome=_NEVER, topic=Topic.CATALOGUE),
    "not_found": Verdict(outcome=_NEVER, topic=Topic.CATALOGUE),
    "primary_ip_datacenter_mismatch": Verdict(outcome=_NEVER, topic=Topic.CATALOGUE),
    "primary_ip_version_mismatch": Verdict(outcome=_NEVER, topic=Topic.INPUT),
    "uniqueness_error": Verdict(outcome=Outcome.EXISTS_FOREIGN, topic=Topic.STATE),
    "protected": Verdict(outcome=_NEVER, topic=Topic.PROTECTED),
    # the state of the thing
    "locked": Verdict(outcome=_RETRY, topic=Topic.STATE),
    "resource_locked": Verdict(outcome=_RETRY, topic=Topic.STATE),
    "conflict": Verdict(outcome=_RETRY, topic=Topic.STATE),
    "resource_in_use": Verdict(outcome=_RETRY, topic=Topic.STATE),
    "must_be_unassigned": Verdict(outcome=_RETRY, topic=Topic.STATE),
    "primary_ip_assigned": Verdict(outcome=_RETRY, topic=Topic.STATE),
    "volume_already_attached": Verdict(outcome=_NEVER, topic=Topic.STATE),
    "server_not_stopped": Verdict(outcome=_NEVER, topic=Topic.STATE),
    "server_has_ipv4": Verdict(outcome=_NEVER, topic=Topic.STATE),
    "rate_limit_exceeded": Verdict(outcome=_RETRY, topic=Topic.RATE),
    # nobody knows
    "bad_gateway": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.NETWORK),
    "timeout": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.NETWORK),
    "service_error": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.OTHER),
    "server_error": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.OTHER),
    "unavailable": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.OTHER),
    "maintenance": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.OTHER),
    "robot_unavailable": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.OTHER),
    "unknown_error": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.OTHER),
}

CREATE_TABLE: Final[Mapping[str, Verdict]] = {
    **TABLE,
    # "changed during the request" does not say on which side of the purchase
    "conflict": Verdict(outcome=Outcome.UNKNOWN, topic=Topic.STATE),
}
"""For the call that buys a machine."""

FAILED_TABLE: Final[Mapping[str, Verdict]] = {
    **TABLE,
    # as codes of a finished action these say that the machine was not placed
    "action_failed": Verdict(outcome=_NEVER, topic=Topic.OTHER),
    "unavailable": Verdict(outcome=_RETRY, topic=Topic.CAPACITY),
    "server_error": Verdict(outcome=_RETRY, topic=Topic.OTHER),
}
"""For what was accepted and failed afterwards."""
