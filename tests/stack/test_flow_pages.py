"""What the pages show of flows works: the commands, the drawing, the signed webhook."""

import json
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.flows import chart
from cli.main import app
from tests.stack.conftest import PARCELS, CommandLine

ROOT = Path(__file__).parents[2]
FLOWS = (ROOT / "docs/flows.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("**/README.md"))]


def consoles(text: str) -> list[str]:
    """The console blocks of a page, lines that go on joined."""
    return [block.replace("\\\n", "") for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)]


def commands(page: Path) -> list[list[str]]:
    """The arguments of each `fetchbox` that a page shows."""
    found = re.findall(r"^\$ (?:[A-Z_]+=\S+ )*fetchbox (.*)", "\n".join(consoles(page.read_text())), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


SHOWN = [words for page in PAGES for words in commands(page)]


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_command_that_a_page_shows_is_one(words: list[str]) -> None:
    one: Any = typer.main.get_command(app)
    name, rest, context = "fetchbox", list(words), None
    if "--help" in rest or "--version" in rest:
        return
    while True:
        context = one.make_context(name, rest, parent=context)
        if not hasattr(one, "commands"):
            return
        name, one, rest = one.resolve_command(context, [*context._protected_args, *context.args])


def test_the_page_shows_every_command_of_flows() -> None:
    group: Any = typer.main.get_command(app)
    shown = {words[1] for words in commands(ROOT / "docs/flows.md") if words[0] == "flows"}
    assert shown == set(group.commands["flows"].commands)


def test_the_drawing_of_the_page_is_explained_as_in_the_terminal() -> None:
    legend = next(line for line in FLOWS.splitlines() if line.startswith("█ attempt"))
    assert legend == "   ".join(f"{look.shape} {look.words}" for look in chart._LOOKS.values())


@pytest.mark.skipif(shutil.which("openssl") is None or shutil.which("curl") is None, reason="they are not here")
def test_the_signed_webhook_of_the_page_opens_a_gate(connected: CommandLine) -> None:
    run = connected.run("flows", "start", "parcel", "--id", "parcel-1")
    assert run.returncode == 0, run
    deadline = time.monotonic() + 60
    while json.loads(connected.run("flows", "get", "parcel-1", "--json").stdout).get("waitStep") != "arrive":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (block,) = [block for block in consoles(FLOWS) if "openssl" in block]
    lines = block.splitlines()
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    script = script.replace("127.0.0.1:8080", connected.environment["FETCHBOX_GATEWAY_LISTEN"])
    sent = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=connected.environment | {"PARCELS": PARCELS},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sent.stdout == lines[-1], sent
    watched = connected.run("flows", "watch", "parcel-1")
    assert watched.returncode == 0, watched
    assert 'by webhook: {"state": "arrived"}' in watched.stdout
