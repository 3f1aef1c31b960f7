"""What a person asks of `worker join`, read into checked values. Pure: no file, no network.

A join token and flags may stand side by side: they must agree on address and node; fingerprints
given as flags replace the token's (the person has said which key), a CA file adds to them.
"""

import dataclasses
import datetime
import ipaddress
from collections.abc import Callable
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from runtime_kit import foreign_certificates
from runtime_kit import secret as secret_kit
from wire_protocol import agent_url, enrollment_token, ids, join_token
from wire_protocol import labels as label_kit
from wire_protocol import pins as pin_kit
from worker_agent.enrollment import platform_url, ticket_file
from worker_agent.settings import failures

MOST_ADDRESSES = 16
MOST_PINS = 16
HIGHEST_PORT = 65_535
MAX_CA_BYTES = 65_536
_Text = TypeVar("_Text")
_Value = TypeVar("_Value")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The command's arguments as text; files and stdin have been read, secrets are wrapped."""

    join_token: secret_kit.Secret | None = None
    ticket: secret_kit.Secret | None = None
    platform_url: str | None = None
    node_id: str | None = None
    enrollment_token: secret_kit.Secret | None = None
    fingerprints: tuple[str, ...] = ()
    ca_pem: bytes | None = None
    addresses: tuple[str, ...] = ()
    port: int | None = None
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The same, checked. None and empty mean: not given."""

    url: str | None = None
    node_id: ids.NodeId | None = None
    token: enrollment_token.EnrollmentToken | None = None
    pins: tuple[pin_kit.Pin, ...] = ()
    pins_are_flags: bool = False
    ca_pem: str | None = None
    trust_key_ids: tuple[ids.KeyId, ...] = ()
    expires_at: datetime.datetime | None = None
    addresses: tuple[str, ...] = ()
    port: int | None = None
    labels: dict[str, str] | None = None
    presented: ticket_file.Presented | None = None


def parse(given: Given) -> Wish:
    """Checks the shape of everything; raises `Misuse` naming the flag and the right form."""
    url = _read("--platform-url", platform_url.parse, given.platform_url)
    node_id = _read("--node-id", ids.parse_node_id, given.node_id)
    flag_token = _read("--enrollment-token", _parse_token, given.enrollment_token)
    join = _read("The join token", _parse_join_token, given.join_token)
    ticket = _read("--ticket-file", _parse_ticket, given.ticket)
    if join is not None and ticket is not None:
        raise failures.Misuse("A ticket stands in place of a join token: give only one.")
    flag_pins = tuple(
        _parse("--platform-fingerprint", pin_kit.parse_pin, p) for p in given.fingerprints
    )
    if len(flag_pins) > MOST_PINS:
        raise failures.Misuse(f"--platform-fingerprint may be given at most {MOST_PINS} times.")
    flags = Wish(
        url=url,
        node_id=node_id,
        token=flag_token,
        pins=flag_pins,
        pins_are_flags=bool(flag_pins),
        ca_pem=_read("--platform-ca-file", _parse_ca, given.ca_pem),
        addresses=_addresses(given.addresses),
        port=_read("--port", _parse_port, given.port),
        labels=_read("--label", _parse_labels, given.labels or None),
    )
    if ticket is not None:
        flags = dataclasses.replace(flags, presented=ticket.presented)
        return _merge(flags, join=ticket.join)
    return flags if join is None else _merge(flags, join=join)


def _merge(flags: Wish, *, join: join_token.JoinToken) -> Wish:
    url = _parse("The join token's address", platform_url.parse, join.url)
    if flags.url not in (None, url):
        raise failures.Misuse(f"--platform-url is {flags.url}, but the join token says {url}.")
    if flags.node_id not in (None, join.node_id):
        raise failures.Misuse(
            f"--node-id is {flags.node_id}, but the join token is for {join.node_id}."
        )
    if flags.token not in (None, join.token):
        raise failures.Misuse("--enrollment-token differs from the join token's: give only one.")
    return dataclasses.replace(
        flags,
        url=url,
        node_id=join.node_id,
        token=join.token,
        pins=flags.pins or join.pins,
        trust_key_ids=join.trust_key_ids,
        expires_at=join.expires_at,
    )


def _read(name: str, reader: Callable[[_Text], _Value], text: _Text | None) -> _Value | None:
    return None if text is None else _parse(name, reader, text)


def _parse(name: str, reader: Callable[[_Text], _Value], text: _Text) -> _Value:
    try:
        return reader(text)
    except ValueError as error:
        raise failures.Misuse(f"{name}: {error}") from None


def _parse_join_token(text: secret_kit.Secret) -> join_token.JoinToken:
    return join_token.decode(text.reveal())


def _parse_ticket(text: secret_kit.Secret) -> ticket_file.TicketFile:
    return ticket_file.parse(text.reveal())


def _parse_token(text: secret_kit.Secret) -> enrollment_token.EnrollmentToken:
    return enrollment_token.parse(text.reveal().strip(" \t\r\n\ufeff'\""))


def _parse_ca(content: bytes) -> str:
    if len(content) > MAX_CA_BYTES:
        raise ValueError(f"a CA file has at most {MAX_CA_BYTES} bytes.")
    try:
        with foreign_certificates.translated():
            authorities = x509.load_pem_x509_certificates(content)
    except ValueError:
        authorities = []
    if not authorities:
        raise ValueError("the file holds no PEM certificate (-----BEGIN CERTIFICATE-----).")
    return "".join(
        authority.public_bytes(serialization.Encoding.PEM).decode() for authority in authorities
    )


def _parse_port(port: int) -> int:
    if not agent_url.LEAST_PORT <= port <= HIGHEST_PORT:
        raise ValueError(
            f"{port} is no port for an Agent: use one from {agent_url.LEAST_PORT} to "
            f"{HIGHEST_PORT}, which needs no root."
        )
    return port


def _parse_labels(pairs: tuple[str, ...]) -> dict[str, str]:
    return label_kit.parse(pairs, most=label_kit.MOST_REPORTED)


def _addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    if len(texts) > MOST_ADDRESSES:
        raise failures.Misuse(f"--address may be given at most {MOST_ADDRESSES} times.")
    return tuple(dict.fromkeys(_parse("--address", _parse_address, text) for text in texts))


def _parse_address(text: str) -> str:
    host = agent_url.parse_host(text.strip())
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified or address.is_multicast or address.is_link_local:
        raise ValueError(
            f"{host} cannot be dialled by the Platform: give the address at which it reaches "
            "this machine."
        )
    return host
