"""What DigitalOcean's refusals mean.

Its codes are few: `unprocessable_entity` alone covers a spent quota, a size that this region does
not have, and a wrong word. Only the message tells them apart, so it is read here, by patterns taken
from public reports, and nowhere else.

Known limit: a message that was reworded falls back to what its status says, which stops the order
and shows the words.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from provisioning import answers, outcomes

RAISE_LIMIT: Final = "https://cloud.digitalocean.com/account/team/droplet_limit_increase"

_OUTCOME = outcomes.Outcome
_TOPIC = outcomes.Topic

_BY_MESSAGE: Final = (
    (
        r"limit (has been )?(reached|exceeded)|exceed(s|ed)? (your|the) .*limit|quota",
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.QUOTA, link=RAISE_LIMIT),
    ),
    (
        r"payment|billing|past due|account is (locked|suspended)",
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.MONEY),
    ),
    (
        (
            r"(out of|no|insufficient|lack of) capacity|currently (unavailable|restricted|disabled)"
            r"|temporarily"
        ),
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.CAPACITY),
    ),
    (
        (
            r"pending event|is locked|in progress|still attached|already attached|attached volume"
            r"|currently (attached|processing)"
        ),
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.STATE),
    ),
    (
        (
            r"not (currently )?available|not supported in|invalid (size|image|region)"
            r"|image (was )?not|no such (size|image|region)|not found in"
        ),
        answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.CATALOGUE),
    ),
)
_JUDGED_BY_MESSAGE: Final = frozenset({400, 402, 403, 409, 412, 422})
_BY_STATUS: Final = {
    402: answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.MONEY),
    409: answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.STATE),
    412: answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.STATE),
    422: answers.Verdict(outcome=_OUTCOME.NOT_DONE_PERMANENT, topic=_TOPIC.INPUT),
    423: answers.Verdict(outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=_TOPIC.STATE),
}


def read(body: Any) -> tuple[str, str]:
    """Code and message of `{id, message, request_id}`; empty where the body is none such."""
    if not isinstance(body, dict):
        return "", ""
    code, message = body.get("id"), body.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        return "", ""
    return code, message


def judge(refusal: answers.Refusal) -> Mapping[str, answers.Verdict]:
    """The verdict for this refusal's code, where status and message say more than the code."""
    if refusal.status in _JUDGED_BY_MESSAGE:
        for pattern, verdict in _BY_MESSAGE:
            if re.search(pattern, refusal.message, re.IGNORECASE):
                return {refusal.code: verdict}
    verdict_by_status = _BY_STATUS.get(refusal.status)
    return {} if verdict_by_status is None else {refusal.code: verdict_by_status}
