"""What the pages show of flows works: the commands, the drawing, the signed webhook."""

import json
import re
import shlex
import shutil
import subprocess
import sys
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
def test_the_webhook_that_the_page_signs_in_a_shell_opens_a_gate(connected: CommandLine) -> None:
    (block,) = [block for block in consoles(FLOWS) if "openssl" in block]
    lines = block.splitlines()
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    assert _signed(connected, "parcel-1", ["bash", "-euo", "pipefail", "-c"], script) == lines[-1]


def test_the_webhook_that_the_page_signs_in_python_opens_a_gate(connected: CommandLine) -> None:
    (script,) = [block for block in re.findall(r"```python\n(.*?)```", FLOWS, re.DOTALL) if "hmac" in block]
    assert (
        _signed(connected, "parcel-2", [sys.executable, "-W", "error", "-c"], script) == '{"released":1,"parked":false}'
    )


def _signed(connected: CommandLine, flow_id: str, command: list[str], script: str) -> str:
    """What a program of the page was answered, which has opened the gate of a new run."""
    # A signature counts once, so each run has a key of its own.
    key = f"of-{flow_id}"
    run = connected.run("flows", "start", "parcel", "--id", flow_id, "--input", json.dumps({"key": key}))
    assert run.returncode == 0, run
    deadline = time.monotonic() + 60
    while json.loads(connected.run("flows", "get", flow_id, "--json").stdout).get("waitStep") != "arrive":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    sent = subprocess.run(
        [
            *command,
            script.replace("127.0.0.1:8080", connected.environment["FETCHBOX_GATEWAY_LISTEN"]).replace("p-7", key),
        ],
        env=connected.environment | {"PARCELS": PARCELS},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    watched = connected.run("flows", "watch", flow_id)
    assert watched.returncode == 0, watched
    assert 'by webhook: {"state": "arrived"}' in watched.stdout
    return sent.stdout.strip()
