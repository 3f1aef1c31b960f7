"""Makes sure whom the client speaks to, before the first byte of a request.

By pin (a handshake that proves the key, then a context that trusts that one certificate), by CA
file, or by the system's roots. There is no switch to skip it. A pin with a CA file: both must
hold. Not for: the machine's own join, which has `runtime_kit.server_trust`.
"""

import asyncio
import concurrent.futures
import ssl

from enlist import errors, targets
from runtime_kit import dial, failures, pinned_handshake, tls

_TIMEOUT_S = 20.0


async def context_for(target: targets.Target) -> ssl.SSLContext:
    """The TLS context for that Platform, proved at this moment where it is pinned.

    Raises:
        NeedsOperator: Another key than the pinned ones answers, or a CA file without certificates.
        Temporary: Nobody answers.
    """
    if target.pins:
        leaf = await _prove(target)
        if target.ca_pem is None:
            return tls.trusting_context(leaf_der=leaf.der)
    if target.ca_pem is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=target.ca_pem)
    except (ssl.SSLError, ValueError) as error:
        raise errors.NeedsOperator(
            "The CA file does not hold PEM certificates: give the right one with enlist config "
            "add-context --ca-file."
        ) from error
    return context


def context_now(target: targets.Target) -> ssl.SSLContext:
    """The same for the sync client, which may itself be called where an event loop runs."""
    with concurrent.futures.ThreadPoolExecutor(1, "enlist-tls") as thread:
        return thread.submit(lambda: asyncio.run(context_for(target))).result()


async def _prove(target: targets.Target) -> pinned_handshake.Leaf:
    try:
        origin = dial.parse_https_origin(target.origin)
        async with asyncio.timeout(_TIMEOUT_S):
            with await dial.dial(origin.host, port=origin.port) as sock:
                return await pinned_handshake.authenticate_pinned(
                    sock, pins=target.pins, server=origin.authority, host=origin.host
                )
    except failures.NetworkFailure as error:
        raise of_failure(error) from error
    except TimeoutError as error:
        raise errors.Temporary(f"{target.shown} did not answer in time.") from error


def of_failure(error: failures.NetworkFailure) -> errors.EnlistError:
    """The SDK's error for what the network did."""
    sentence = f"{error}."
    if error.kind is failures.Kind.TRANSIENT:
        return errors.Temporary(sentence)
    if error.kind is failures.Kind.NEEDS_OPERATOR:
        return errors.NeedsOperator(
            f"{sentence} If the Platform's key was changed on purpose: enlist config add-context "
            "NAME --url URL --pin PIN"
            if isinstance(error, pinned_handshake.PinMismatch)
            else sentence
        )
    return errors.Invalid(sentence)
