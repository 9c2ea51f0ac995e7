"""The operators' page at `/ui`: static files that `make web` built, for everyone; what they show needs a token.

The page names its files and the API relative to itself, so a proxy may serve it below any path that it strips. The
files are named by their content: a browser keeps them for ever, and asks for the page alone each time.
"""

import mimetypes
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from gateway.pages import Page

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_GUARDS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_MODE: Final = b'<meta name="fetchbox-ui" content="full">'


def load(mode: str) -> dict[str, Page]:
    """The files by their paths; none of them where `mode`, which is `gateway.ui`, is `off`."""
    if mode == "off":
        return {}
    folder = files(__package__) / "ui"
    page = (folder / "index.html").read_bytes().replace(_MODE, _MODE.replace(b"full", mode.encode()))
    found = {
        # Relative: behind a proxy the path of the page begins with one that only the proxy knows.
        "/ui": Page({**_GUARDS, "Location": "ui/", "Cache-Control": "no-cache"}, b"", 308),
        "/ui/": Page({**_head("text/html"), "Cache-Control": "no-cache"}, page),
    }
    found.update((f"/ui/assets/{file.name}", _asset(file)) for file in _assets(folder))
    return found


def _assets(folder: Traversable) -> Iterator[Traversable]:
    return (folder / "assets").iterdir()


def _asset(file: Traversable) -> Page:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return Page({**_head(kind), "Cache-Control": _FOR_EVER}, file.read_bytes(), label="/ui/assets")


def _head(kind: str) -> Mapping[str, str]:
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return {"Content-Type": f"{kind}{charset}", **_GUARDS}
