"""A web site of another origin than FetchBox: files of one folder, and pages of a test."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self


class _Files(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, pages: dict[str, str], **options: Any) -> None:
        self._pages = pages
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        page = self._pages.get(self.path)
        if page is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing of each request."""


class Origin:
    """Serves `folder` and `pages`, by path, while it is open."""

    def __init__(self, folder: Path) -> None:
        self.pages: dict[str, str] = {}
        handler = partial(_Files, directory=str(folder), pages=self.pages)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
