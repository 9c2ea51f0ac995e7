"""Where the cases and their proto are."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[3]
TABLE = _ROOT / "tests" / "cases" / "transcoding.json"


def descriptor_set() -> bytes:
    """The descriptor set of `transcoding.proto` with its imports."""
    roots = [f"-I{folder}" for folder in (_ROOT / "tests/gateway", _ROOT / "proto", _ROOT / "third_party")]
    command = [sys.executable, "-m", "grpc_tools.protoc", *roots, "--include_imports"]
    built = subprocess.run(
        [*command, "--descriptor_set_out=/dev/stdout", "transcoding.proto"], check=True, stdout=subprocess.PIPE
    )
    return built.stdout
