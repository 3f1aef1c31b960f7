"""Everything a Platform listens on, bound at once before any child is started.

A port that is taken stops the start here, before a store is opened or a key is made. Sockets that
a service manager has opened are taken instead of binding (`passed`). Whether the
API's port speaks TLS follows from where it listens and from the operator's certificate, never from
the public URL: in front of a port on loopback the TLS of that URL ends in a proxy.
"""

import contextlib
import dataclasses
import pathlib
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from platform_server.app import addresses, failures, local_machines, passed, sockets
from platform_server.settings import groups
from wire_protocol import problems

_API: Final = sockets.Asked(what="The API", option="--listen HOST:PORT")
_ENROLLMENT: Final = sockets.Asked(
    what="The enrollment port", option="--enrollment-port PORT (or enrollment.port)"
)
_GATEWAY: Final = sockets.Asked(
    what="The gateway",
    option="--gateway-port PORT (or gateway.port; off opens none)",
)
_BUNDLES: Final = sockets.Asked(
    what="The bundle port", option="--bundle-port PORT (or bundles.port)"
)
LOCAL_SOCKET: Final = "platform.sock"
ENROLL_SOCKET: Final = "enroll.sock"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The sockets, and what people call them."""

    api: Sequence[socket.socket]
    api_url: str
    api_speaks_tls: bool
    api_names: Sequence[str]
    enrollment: Sequence[socket.socket]  # none where the listener is a unit of its own
    enrollment_url: str | None
    enrollment_names: Sequence[str]
    gateway: Sequence[socket.socket]
    gateway_urls: Sequence[str]
    gateway_names: Sequence[str]
    bundles: Sequence[socket.socket]  # likewise
    bundle_url: str | None
    local: socket.socket
    enroll: socket.socket


@contextlib.contextmanager
def bound(settings: groups.Settings, *, run: pathlib.Path, given: passed.Passed) -> Iterator[Bound]:
    """Binds all; closes all and removes the socket files at the end. Raises `CannotStart`."""
    with contextlib.ExitStack() as stack:
        stack.callback(given.close)
        _require_nodes(settings)
        given.require_wanted(settings)
        host, port = sockets.parse_listen(settings.api.listen)
        found = sockets.resolve(host)
        if given.api:
            given.require_api_at(found, port=port)
            api: Sequence[socket.socket] = given.api
        else:
            api = sockets.bind_tcp(found, port=port, asked=_API, skip_missing=False)
            stack.callback(sockets.close_all, api)
        plain = sockets.is_loopback(found) and settings.api.tls_cert_file is None
        shown = host if not _is_wildcard(found) else addresses.names_of_this_machine()[0]
        own_listener = not settings.enrollment.unit
        enrollment = _bind_public(
            settings, port=settings.enrollment.port if own_listener else None, asked=_ENROLLMENT
        )
        stack.callback(sockets.close_all, enrollment)
        gateway = given.gateway or _bind_public(
            settings, port=settings.gateway_port, asked=_GATEWAY
        )
        stack.callback(sockets.close_all, gateway)
        own_bundles = not settings.bundles.unit
        bundles = _bind_public(
            settings, port=settings.bundles.port if own_bundles else None, asked=_BUNDLES
        )
        stack.callback(sockets.close_all, bundles)
        local_address = local_machines.address(settings)
        bridge = () if local_address is None else (local_address,)
        names = settings.enrollment.addresses or addresses.names_of_this_machine()
        gateway_names = settings.gateway.addresses or names
        reached = addresses.from_elsewhere(gateway_names)
        local = _bind_local(run / LOCAL_SOCKET, stack=stack)
        enroll = given.enroll or _bind_local(run / ENROLL_SOCKET, stack=stack)
        yield Bound(
            api=api,
            api_url=settings.platform.public_url
            or addresses.url(
                "http" if plain else "https", host=shown, port=api[0].getsockname()[1]
            ),
            api_speaks_tls=not plain,
            api_names=addresses.certificate_names(found),
            enrollment=enrollment,
            enrollment_url=_url(names, bound_to=enrollment, port=settings.enrollment.port),
            enrollment_names=tuple(dict.fromkeys((*names, *bridge))),
            gateway=gateway,
            gateway_urls=[
                addresses.url("https", host=name, port=gateway[0].getsockname()[1])
                for name in dict.fromkeys(reached)
            ]
            if gateway
            else [],
            gateway_names=tuple(dict.fromkeys((*gateway_names, *bridge))),
            bundles=bundles,
            bundle_url=_url(names, bound_to=bundles, port=settings.bundles.port),
            local=local,
            enroll=enroll,
        )


def _url(
    names: Sequence[str], *, bound_to: Sequence[socket.socket], port: int | None
) -> str | None:
    """A public port's address: where it was bound, or where its own unit listens."""
    if port is None:
        return None
    number = bound_to[0].getsockname()[1] if bound_to else port
    return addresses.url("https", host=names[0], port=number)


def _require_nodes(settings: groups.Settings) -> None:
    """A gateway that was asked for where nodes cannot be is a slip, not a wish."""
    if settings.mesh.enabled and not settings.dispatch_enabled:
        raise failures.CannotStart(
            "--mesh (or mesh.enabled) connects nodes, and this Platform takes none: give "
            "--enrollment-port as well, or set [dispatch] enabled = true.",
            exit_code=problems.Exit.INVALID,
        )
    asked = isinstance(settings.gateway.port, int)
    if asked and settings.dispatch.enabled is None and settings.enrollment.port is None:
        raise failures.CannotStart(
            "--gateway-port (or gateway.port) opens a port for nodes, and this Platform takes "
            "none: give --enrollment-port as well, or set [dispatch] enabled = true.",
            exit_code=problems.Exit.INVALID,
        )
    _require_different(settings)


def _require_different(settings: groups.Settings) -> None:
    ports = {
        "the enrollment port": (settings.enrollment.port, _ENROLLMENT),
        "the gateway": (settings.gateway_port, _GATEWAY),
        "the bundle port": (settings.bundles.port, _BUNDLES),
    }
    seen: dict[int, str] = {}
    for what, (port, asked) in ports.items():
        if port and port in seen:
            raise failures.CannotStart(
                f"{asked.what} and {seen[port]} cannot both be {port}: give one of them another "
                f"with {asked.option}.",
                exit_code=problems.Exit.INVALID,
            )
        if port:
            seen[port] = what


def _bind_public(
    settings: groups.Settings, *, port: int | None, asked: sockets.Asked
) -> list[socket.socket]:
    if port is None:
        return []
    default = settings.listen.addresses == groups.ListenGroup().addresses
    bridge = None if default else local_machines.address(settings)
    return sockets.bind_tcp(
        settings.listen.addresses,
        port=port,
        asked=asked,
        skip_missing=default,
        # The bridge comes with the first local machine.
        to_come=() if bridge is None or bridge in settings.listen.addresses else (bridge,),
    )


def _bind_local(path: pathlib.Path, *, stack: contextlib.ExitStack) -> socket.socket:
    one = sockets.bind_local(path)
    stack.callback(sockets.remove_local, path, inode=path.stat().st_ino)
    stack.callback(one.close)
    return one


def _is_wildcard(found: Sequence[str]) -> bool:
    return any(one in ("::", "0.0.0.0") for one in found)  # noqa: S104 - compared, not bound
