"""What a server allows; every number has its unit in its name."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one server process; the defaults are those of the enrollment listener."""

    handshake_s: float = 3.0
    """From accepting a socket to the end of its TLS handshake."""
    head_s: float = 5.0
    """From the end of the handshake, or a further request's first byte, to its complete head."""
    idle_s: float = 5.0
    """How long a kept-alive connection may wait for its next request."""
    body_s: float = 10.0
    """From the head to the end of the body."""
    work_s: float = 30.0
    """How long the handler may take, once it has a place."""
    head_bytes: int = 16_384
    body_bytes: int = 65_536
    sockets: int = 1024
    """When full, the oldest without a complete head is closed."""
    sockets_by_address: int | None = None
    """How many one address may hold (of IPv6, one /64); None leaves all of them to whoever comes.
    With it, when full, the slowest transfer of the address that holds the most is cut off for a
    newcomer whose own address holds fewer."""
    in_work: int = 64
    """Requests handed to the handler at one time."""
    place_s: float = 2.0
    """How long a request waits for a place before it is answered 503."""
    retry_after_s: int = 2
    """What a 503 for want of a place tells the client."""
    drop_bytes: int = 1_048_576
    """How much of a refused request's body is read and dropped, so that the answer gets through."""
    drop_s: float = 1.0
    close_s: float = 1.0
    """How long the other side may take to read the last answer and to say goodbye."""
    stall_s: float = 20.0
    """How long a client may take nothing of a body that is sent in pieces."""
    transfer_s: float = 900.0
    """How long such a body may take in all."""
    least_bytes_s: int = 0
    """How much a second, over the whole time, a client must take of such a body; 0: any."""
    least_after_s: float = 30.0
    """From when on that is looked at."""
