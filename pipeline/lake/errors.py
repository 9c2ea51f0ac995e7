"""What may be wrong with the lake itself."""

from __future__ import annotations


class LakeFileError(ValueError):
    """A file of the lake is missing or is not what it should be; the message names its key."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key} {problem}")
