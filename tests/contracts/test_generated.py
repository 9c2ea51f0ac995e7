"""The bindings are generated, typed, fresh, and the only schema of the messages."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GEN = ROOT / "gen" / "fetchbox"


@pytest.mark.req("R000-6.01")
def test_generating_again_changes_nothing() -> None:
    done = subprocess.run([ROOT / "tools/gen_check.sh"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.req("R000-5.01")
def test_every_contract_has_typed_bindings_in_a_package_of_their_own() -> None:
    for proto in (ROOT / "proto" / "fetchbox").rglob("*.proto"):
        module = GEN / proto.relative_to(ROOT / "proto" / "fetchbox").with_suffix("")
        assert Path(f"{module}_pb2.py").exists()
        stub = Path(f"{module}_pb2.pyi").read_text()
        for message in re.findall(r"^message (\w+)", proto.read_text(), re.MULTILINE):
            assert f"class {message}(" in stub


@pytest.mark.req("R000-goal.01", "R000-2.01")
def test_no_second_schema_of_the_stream_messages_is_written_by_hand() -> None:
    names = set(re.findall(r"^message (\w+)", (ROOT / "proto/fetchbox/jobs/jobs.proto").read_text(), re.MULTILINE))
    for package in ("kernel", "flows", "ingest_svc", "worker_svc", "operator_svc", "gateway", "cli"):
        for path in (ROOT / package).rglob("*.py"):
            classes = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
            assert not classes & names, f"{path} declares {classes & names} again"
