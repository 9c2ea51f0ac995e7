"""What a file is: by its name, else by its first bytes."""

from __future__ import annotations

import mimetypes
from typing import Final

from kernel.objects.store import BINARY
from worker_svc.fetch.sniff import sniff

_BY_NAME: Final = mimetypes.MimeTypes().types_map[True]
"""Python's own table, which is the same on every machine; that of the system is not."""
_OURS: Final = {
    ".br": "application/x-brotli",
    ".bz2": "application/x-bzip2",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".epub": "application/epub+zip",
    ".gz": "application/gzip",
    ".jsonl": "application/x-ndjson",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".ndjson": "application/x-ndjson",
    ".odp": "application/vnd.oasis.opendocument.presentation",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".parquet": "application/vnd.apache.parquet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".tgz": "application/gzip",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".xz": "application/x-xz",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".zst": "application/zstd",
}
"""What that table lacks, or takes for a coding of something else: an object is the packed file as it is."""


def content_type(name: str, head: bytes) -> str:
    """The media type of a file by its name, else by its first bytes; `application/octet-stream` where neither tells."""
    stem, dot, last = name.rpartition(".")
    extension = f".{last.lower()}" if dot and stem else ""
    return _OURS.get(extension) or _BY_NAME.get(extension) or sniff(head) or BINARY
