"""The handler's door: what `fetchbox.handlers` promises, who uses it, and the one list of rooms behind it."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import fetchbox.handlers
from tests.contracts.test_layers import ALLOWED
from tools.wheel_hook import rewritten

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
ROOMS = frozenset(Path(room).name for room in HOOK["rooms"])
STABLE = {
    "DefaultHandler",
    "DownloadTask",
    "FetchboxError",
    "HttpHeader",
    "JobHandler",
    "JobSummary",
    "Manifest",
    "PreparedManifest",
    "ProxyHint",
    "Reason",
    "Resource",
    "StepHandler",
    "StorageHint",
    "StoredObject",
    "SyncTaskRun",
    "TaskAttributes",
    "TaskContext",
    "TaskError",
    "TaskHandler",
    "TaskRun",
    "TaskSettings",
    "Violation",
    "default_storage",
    "key_segment",
    "merged_headers",
}
"""Users' code has these names: one may be added, and none may go."""
MEMBERS = {
    "JobHandler": {"options", "prepare_manifest", "build_tasks", "build_task", "storage_for", "run", "finalize_job"},
    "TaskHandler": {"settings", "start", "close", "run"},
    "TaskContext": {"attempt", "fetch", "put", "log"},
    "TaskRun": {"token", "progress", "log", "event", "flow_id", "step_key", "step_attempt", "job_id", "payload_json"},
    "TaskError": {"code", "message", "retry_after"},
}


def test_the_public_names_are_these() -> None:
    assert set(fetchbox.handlers.__all__) == STABLE
    assert [name for name in STABLE if getattr(fetchbox.handlers, name, None) is None] == []


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_the_members_that_handlers_use_are_these(name: str) -> None:
    found = getattr(fetchbox.handlers, name)
    made = set(found("", "").__dict__) if name == "TaskError" else set()
    if name in ("JobHandler", "TaskHandler"):
        made = set(found({}).__dict__)
    names = {one for one in {*dir(found), *getattr(found, "__annotations__", {}), *made} if not one.startswith("_")}
    assert MEMBERS[name] <= names


def test_the_page_names_each_of_them() -> None:
    page = (ROOT / "docs/handlers.md").read_text().partition("## What a handler imports")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == STABLE


def test_examples_and_pages_import_handlers_through_the_door() -> None:
    examples, pages = (ROOT / "examples").rglob("*.py"), (ROOT / "docs").glob("*.md")
    deeper = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(ROOMS)})\b", re.MULTILINE)
    assert [str(path) for path in examples if deeper.search(path.read_text())] == []
    assert [str(path) for path in pages if "kernel.handlers" in path.read_text()] == []


def test_every_list_of_rooms_is_the_one_of_the_wheel() -> None:
    makefile = re.search(r"^ROOMS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert makefile is not None
    assert set(makefile[1].split()) | {"buf"} == set(ALLOWED) | {"buf"} == ROOMS
    tools = PROJECT["tool"]
    assert ROOMS - {"buf"} <= set(tools["mypy"]["files"])
    assert set(tools["ruff"]["lint"]["isort"]["known-first-party"]) >= ROOMS


def test_names_of_rooms_in_texts_go_through_kernel_rooms() -> None:
    """`import_module("cli.up")`, `files("kernel")` and `-m cli.main` are right in a checkout alone."""
    room = re.compile(rf"^(?:{'|'.join(ROOMS)})(?:\.\w+)*$")
    stray = []
    for path in (path for name in ALLOWED for path in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "files", "find_spec")):
                named = node.args[:1]
            elif isinstance(node, ast.List):
                constants = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
                named = node.elts[constants.index("-m") + 1 :][:1] if "-m" in constants else []
            else:
                continue
            stray += [
                f"{path}: {one.value}" for one in named if isinstance(one, ast.Constant) and room.match(one.value)
            ]
    assert stray == []


@pytest.mark.parametrize(
    ("source", "becomes"),
    [
        ("from kernel.ids import uuid7\n", "from fetchbox._rooms.kernel.ids import uuid7\n"),
        ("from kernel import ids, keys\n", "from fetchbox._rooms.kernel import ids, keys\n"),
        ("def f():\n    from cli import a\n", "def f():\n    from fetchbox._rooms.cli import a\n"),
        (
            "from gateway.a import (\n    b,\n    c,\n)\n",
            "from fetchbox._rooms.gateway.a import (\n    b,\n    c,\n)\n",
        ),
        ("import kernel.ids as ids\n", "import fetchbox._rooms.kernel.ids as ids\n"),
        ("import kernels\nfrom .cli import x\n", "import kernels\nfrom .cli import x\n"),
        (
            "x = 'from kernel import y'\n# from kernel import z\n",
            "x = 'from kernel import y'\n# from kernel import z\n",
        ),
    ],
)
def test_the_build_rewrites_imports_of_rooms_alone(source: str, becomes: str) -> None:
    assert rewritten(source, ROOMS, "a.py") == becomes


@pytest.mark.parametrize("source", ["import kernel.ids\n", "import kernel\n", "from \\\n    kernel import ids\n"])
def test_an_import_that_cannot_be_rewritten_ends_the_build_and_is_named(source: str) -> None:
    with pytest.raises(ValueError, match=r"^room/a\.py:1: "):
        rewritten(source, ROOMS, "room/a.py")
