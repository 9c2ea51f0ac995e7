"""The test proto, compiled once a session; pools are cheap, so every test gets its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool

from tests.gateway.support import new_pool

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def echo_files() -> bytes:
    """`echo.proto` and all its imports, as a descriptor set."""
    roots = [f"-I{folder}" for folder in (Path(__file__).parent, ROOT / "proto", ROOT / "third_party")]
    command = [sys.executable, "-m", "grpc_tools.protoc", *roots, "--include_imports"]
    built = subprocess.run(
        [*command, "--descriptor_set_out=/dev/stdout", "echo.proto"], check=True, stdout=subprocess.PIPE
    )
    return built.stdout


@pytest.fixture
def pool(echo_files: bytes) -> DescriptorPool:
    """A pool of its own with the messages of `echo.proto`."""
    return new_pool(descriptor_pb2.FileDescriptorSet.FromString(echo_files))


@pytest.fixture(scope="session")
def echo_pool(echo_files: bytes) -> DescriptorPool:
    """One pool for all tests that add nothing to it."""
    return new_pool(descriptor_pb2.FileDescriptorSet.FromString(echo_files))
