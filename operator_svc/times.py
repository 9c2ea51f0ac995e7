"""Times on the way out."""

from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(ms: int) -> Timestamp | None:
    """Milliseconds since the epoch as a proto timestamp; None, which leaves the field unset, for 0."""
    if not ms:
        return None
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
