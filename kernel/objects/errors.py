"""What can go wrong with the object store, as failure codes."""

from __future__ import annotations

from fetchbox.errors.v1.errors_pb2 import REASON_UNAVAILABLE, FailureCode
from kernel.errors import FetchboxError, failure_name


class ObjectStoreError(FetchboxError):
    """A call of the object store failed for good. A caller of an RPC sees UNAVAILABLE; a task fails with `failure`."""

    def __init__(self, code: FailureCode.ValueType, message: str) -> None:
        super().__init__(REASON_UNAVAILABLE, message)
        self.code = code

    @property
    def failure(self) -> str:
        """`STORAGE_DENIED`, `STORAGE_NO_BUCKET`, `STORAGE_UNAVAILABLE` or `UPLOAD_FAILED`, as streams carry it."""
        return failure_name(self.code)
