"""The Platform itself: addresses, pins and keys, and turning the keys over."""

from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin


def show() -> "calls.Call[admin.Platform]":
    """Addresses, pins, trust keys, environment, version."""
    return calls.Call(method="GET", path="/platform", answer="admin:Platform")


def rotate_trust_key() -> "calls.Call[admin.Done]":
    """Publishes the next trust key now; the old one stays trusted until its end."""
    return _rotate("trust-key")


def rotate_master_key() -> "calls.Call[admin.Done]":
    """Makes a new master key and wraps every sealed value with it, while the Platform runs."""
    return _rotate("master-key")


def rotate_tls_key(
    *, port: str = "enrollment", after_seconds: int | None = None
) -> "calls.Call[admin.Done]":
    """Publishes the next key of a port now, and serves it after 7 days or the time given.

    `port` is `enrollment` or `gateway`. Until the switch nodes expect both pins, and new join
    tokens carry both of the enrollment port. With 0 the key is served at once: nodes follow by the
    signed statement, and with the enrollment port's key join tokens made before no longer match.
    Raises `Conflict` while a next key is published that is to come sooner, and while the port is
    off.
    """
    return calls.Call(
        method="POST",
        path="/platform/rotate-tls-key",
        answer="admin:Done",
        body=calls.given(port=port, after_seconds=after_seconds),
        keyed=True,
    )


def _rotate(what: str) -> "calls.Call[admin.Done]":
    return calls.Call(
        method="POST", path=f"/platform/rotate-{what}", answer="admin:Done", keyed=True
    )


class Platform(methods.Noun):
    """`client.platform`."""

    show = methods.Sync(show)
    rotate_tls_key = methods.Sync(rotate_tls_key)
    rotate_trust_key = methods.Sync(rotate_trust_key)
    rotate_master_key = methods.Sync(rotate_master_key)


class AsyncPlatform(methods.AsyncNoun):
    """`client.platform`, to be awaited."""

    show = methods.Async(show)
    rotate_tls_key = methods.Async(rotate_tls_key)
    rotate_trust_key = methods.Async(rotate_trust_key)
    rotate_master_key = methods.Async(rotate_master_key)
