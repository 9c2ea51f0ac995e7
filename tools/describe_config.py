"""Writes the comments of the configuration's proto: `tools/describe_config.py DESCRIPTORS DIR`.

DESCRIPTORS is a FileDescriptorSet with source information. `fetchbox config init` shows the comments.
"""

import sys
from pathlib import Path

import orjson
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from fetchbox.config.v1.config_pb2 import Config
from gateway.openapi.comments import Comments


def main(descriptors: str, out: str) -> None:
    """Writes `config_comments.json`: comments by the full names of messages and fields."""
    comments = Comments(FileDescriptorSet.FromString(Path(descriptors).read_bytes()))
    texts: dict[str, str] = {}
    _collect(Config.DESCRIPTOR, comments, texts)
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    Path(out, "config_comments.json").write_bytes(orjson.dumps(texts, option=options) + b"\n")


def _collect(message: Descriptor, comments: Comments, texts: dict[str, str]) -> None:
    if message.file != Config.DESCRIPTOR.file or message.full_name in texts:
        return
    if not message.GetOptions().map_entry:
        texts[message.full_name] = comments.of(message.full_name)
    for field in message.fields:
        if not message.GetOptions().map_entry:
            texts[field.full_name] = comments.of(field.full_name)
        if field.message_type is not None:
            _collect(field.message_type, comments, texts)


if __name__ == "__main__":
    main(*sys.argv[1:])
