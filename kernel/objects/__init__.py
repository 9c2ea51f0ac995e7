"""The object store: S3 and what speaks like it. `ObjectStore` is the door; the other files stand behind it."""

from kernel.object_keys import is_uri, object_key, parse_uri, s3_uri
from kernel.objects.errors import ObjectStoreError
from kernel.objects.info import ObjectInfo
from kernel.objects.store import ObjectStore
from kernel.objects.upload import LARGEST, Upload, part_size

__all__ = [
    "LARGEST",
    "ObjectInfo",
    "ObjectStore",
    "ObjectStoreError",
    "Upload",
    "is_uri",
    "object_key",
    "parse_uri",
    "part_size",
    "s3_uri",
]
