"""The object store: S3 and what speaks like it. `ObjectStore` is the door; nothing else of this package is needed outside."""

from kernel.objects.errors import ObjectStoreError
from kernel.objects.keys import object_key, parse_uri, s3_uri
from kernel.objects.store import ObjectInfo, ObjectStore, Upload

__all__ = ["ObjectInfo", "ObjectStore", "ObjectStoreError", "Upload", "object_key", "parse_uri", "s3_uri"]
