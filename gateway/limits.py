"""What a client may cost the gateway. Times are in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Those that are configured, and those that no deployment has had to change."""

    body: int
    """The largest request body in bytes, on the wire and, for JSON, after decoding."""
    heartbeat: float
    """How long an event stream may be idle before it gets a comment."""
    stranger_body: int = 1 << 20
    """The largest body of a caller without a token where tokens are configured, likewise."""
    connections: int = 16384
    """The most connections of the process."""
    requests: int = 1024
    """The most requests in progress, event streams aside."""
    body_rate: int = 1024
    """The slowest body, in bytes a second on average, once `body_grace` is over; 0 for no floor."""
    body_grace: float = 10.0
    """How long a body may take whatever its rate."""
    inline: int = 4096
    """The largest body that is read on the event loop, in bytes."""
    first_message: float = 2.0
    """How long the headers of a stream wait for its first message: until then a refusal is a real status."""
    stall: float = 30.0
    """How long a client may take for what was written before it is closed."""
    silence: float = 20.0
    """The longest pause within a request body."""
    whole_body: float = 300.0
    """The longest time for a whole request body."""
    keep_alive: float = 60.0
    """How long a connection may stay without a whole request header: an idle or a very slow client's."""
    client_message: int = 4096
    """What one message of a WebSocket's client may hold, in bytes; a longer one ends it (1009)."""
    client_messages: int = 64
    """How many messages of a WebSocket's client are ignored; one more ends it (1008)."""
    closing: float = 5.0
    """How long a WebSocket's client may take to answer the close."""
