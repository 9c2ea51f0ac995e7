"""Writes the OpenAPI document and the page that shows it: `tools/describe_api.py DESCRIPTORS DIR`.

DESCRIPTORS is a FileDescriptorSet with source information, whose comments become the descriptions.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import orjson
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from markdown_it import MarkdownIt
from markupsafe import Markup

from gateway.bootstrap import services
from gateway.openapi import Info, describe

_ABOUT = "REST and Server-Sent Events over the gRPC services of FetchBox, a durable job platform."
_TEMPLATE = "api_page.html.j2"


def main(descriptors: str, out: str) -> None:
    """Writes `openapi.json` and `openapi.html`."""
    files = FileDescriptorSet.FromString(Path(descriptors).read_bytes())
    document = describe(services(), files, Info("FetchBox", version("fetchbox"), _ABOUT))
    Path(out, "openapi.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    Path(out, "openapi.html").write_text(_page(document), encoding="utf-8")


def _page(document: dict[str, Any]) -> str:
    """The document as one page without scripts."""
    here = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=here, autoescape=True)
    environment.filters["markdown"] = _markdown
    return environment.get_template(_TEMPLATE).render(api=document, operations=_by_tag(document))


def _markdown(text: str) -> Markup:
    """HTML of a description; raw HTML in it stays text."""
    return Markup(MarkdownIt("commonmark", {"html": False}).render(text))  # noqa: S704 - the renderer escapes


def _by_tag(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The operations of each service, each with its method and path."""
    found: dict[str, list[dict[str, Any]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            found[operation["tags"][0]].append({**operation, "method": method.upper(), "path": path})
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
