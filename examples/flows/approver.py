"""Somebody who is asked: takes the question of the flow, asks at the terminal, and opens the gate with its secret.

`python examples/flows/approver.py [--yes] [--listen 127.0.0.1:9000]`; FETCHBOX_GATEWAY says where FetchBox is.
"""

import argparse
import getpass
import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

GATEWAY = os.environ.get("FETCHBOX_GATEWAY", "127.0.0.1:8080")


class Approver(BaseHTTPRequestHandler):
    """A callback for the task `tool`."""

    always = False

    def do_POST(self) -> None:
        """Notes the question and answers 204, which ends the step `notify`; then asks, as long as that takes."""
        question = json.loads(self.rfile.read(int(self.headers["content-length"])))["payload"]
        self.send_response(204)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        words = f"{question['stored']} stored, {question['failed']} failed in run {question['run']}"
        if self.always or input(f"{words}: make a catalogue? [y/N] ").lower() == "y":
            opened = open_gate(question, {"by": getpass.getuser()})
            print(f"{words}: {opened['stepKey']} {opened['state']}", flush=True)

    def log_message(self, *_: object) -> None:
        """Says nothing of each request."""


def open_gate(question: dict[str, Any], payload: dict[str, str]) -> Any:
    """Opens the gate; asked twice, since a step may run twice, it gets the same answer twice."""
    request = urllib.request.Request(
        f"http://{GATEWAY}/v1/flows/{question['run']}/gates/{question['step']}/trigger",
        json.dumps({"secret": question["secret"], "payload": payload}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # the address above is http
        return json.load(answer)


def main() -> None:
    """Serves until Ctrl-C."""
    options = argparse.ArgumentParser()
    options.add_argument("--listen", default="127.0.0.1:9000")
    options.add_argument("--yes", action="store_true", help="approve everything")
    given = options.parse_args()
    Approver.always = given.yes
    host, _, port = given.listen.rpartition(":")
    HTTPServer((host, int(port)), Approver).serve_forever()


if __name__ == "__main__":
    main()
