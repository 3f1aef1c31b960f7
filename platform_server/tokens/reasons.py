"""Why an enrollment was refused. For the audit alone: to the caller all of them look the same.

Every stage from here to trust takes its reasons from this list, so that the audit's words are
counted, tested and documented in one place.
"""

import enum


class Reason(enum.StrEnum):
    """One word a reason, as the audit shows it."""

    UNKNOWN_TOKEN = "unknown-token"  # noqa: S105 - a reason, no secret
    WRONG_SECRET = "wrong-secret"  # noqa: S105 - a reason, no secret
    WRONG_NODE = "wrong-node"
    EXPIRED = "expired"
    ALREADY_USED = "already-used"
    REPLACED = "replaced"
    REVOKED = "revoked"
    SOURCE_ADDRESS = "source-address"
    BAD_SIGNATURE = "bad-certificate-signature"
    NODE_CONFIGURED = "node-configured"
    NODE_REMOVED = "node-removed"
    NODE_REGISTERED = "node-registered"
    KEY_IN_USE = "key-in-use"
    KEY_CHANGED = "key-changed"
    NODES_DISABLED = "nodes-disabled"
    NO_OPERATION = "no-operation"
    TICKET_MISSING = "ticket-missing"
    TICKET_REFUSED = "ticket-refused"
    OPERATION_ENDED = "operation-ended"
    MACHINE_DIFFERS = "machine-differs"


NODE_EXISTS = frozenset({Reason.NODE_CONFIGURED, Reason.NODE_REGISTERED})
"""Refusals because the id is taken: they stand in the audit under an outcome of their own."""
