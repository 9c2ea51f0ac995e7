"""The distribution of the Python client, installed into a fresh environment that knows nothing of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from tests.clients.conftest import ROOT
from tests.clients.readme import blocks

PROJECT = ROOT / "clients/python"
WORDS = {
    0: ["hello", "done", "completed"],
    1: ["flow.start", "step.await.triggered", "flow.complete"],
    2: ["resources[0].url", "NOT_FOUND"],
    3: ["done"],
}
"""What the blocks of the README print, and behind them the one of the project's first page."""
STUBS = """
from typing import assert_type

from fetchbox.operator.v1.job_pb2 import DeadLetter
from fetchbox_client import Client

with Client("127.0.0.1:1") as client:
    assert_type(client.jobs.get("a").status, str)
    assert_type([*client.dead_letters.list()], list[DeadLetter])
"""
"""A program that is right only where the stubs have types."""


def _run(*argv: str | Path, cwd: Path, **environ: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, env=plain | environ, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def uv() -> str:
    """The installer, which `make setup` puts here where the machine has none."""
    found = shutil.which("uv") or str(ROOT / ".uv/bin/uv")
    if not Path(found).exists():
        pytest.skip("there is no uv here: `make setup` installs it")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place outside of the checkout."""
    return tmp_path_factory.mktemp("fresh")


@pytest.fixture(scope="module")
def wheel(uv: str, folder: Path) -> Path:
    """The wheel, built from the source distribution, so that this is whole too."""
    _run(uv, "build", "--quiet", PROJECT, "--out-dir", folder / "dist", cwd=folder)
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(uv: str, folder: Path, wheel: Path) -> Path:
    """The interpreter of an environment that has the wheel, and what it depends on."""
    _run(uv, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder)
    interpreter = folder / "venv/bin/python"
    _run(uv, "pip", "install", "--quiet", "--python", interpreter, wheel, cwd=folder)
    return interpreter


def test_no_file_of_it_belongs_to_another_distribution(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fetchbox_client", "fetchbox_client.pth"}
    assert "fetchbox_client/py.typed" in names
    assert not [name for name in names if "/config/" in name], "the configuration is the servers' affair"


def test_it_depends_on_grpc_and_the_stubs_alone(uv: str, python: Path, folder: Path) -> None:
    frozen = _run(uv, "pip", "freeze", "--python", python, cwd=folder)
    names = {line.split("==")[0].split(" @ ")[0] for line in frozen.splitlines()}
    assert names == {"fetchbox-client", "googleapis-common-protos", "grpcio", "protobuf", "typing-extensions"}


def test_the_stubs_are_imported_as_they_are(python: Path, folder: Path) -> None:
    """Also where no `.pth` file is read, as in a folder on PYTHONPATH."""
    program = "from fetchbox.worker.v1 import worker_service_pb2_grpc as stubs; print(stubs.__file__)"
    site = Path(_run(python, "-c", "import fetchbox_client as one; print(one.__file__)", cwd=folder).strip()).parents[1]
    assert site.is_relative_to(folder)
    stubs = site / "fetchbox_client/_gen/fetchbox/worker/v1/worker_service_pb2_grpc.py"
    assert _run(python, "-I", "-c", program, cwd=folder).strip() == str(stubs)
    program = f"import fetchbox_client; {program}"
    assert _run(sys.executable, "-S", "-c", program, cwd=folder, PYTHONPATH=str(site)).strip() == str(stubs)


@pytest.mark.parametrize("block", WORDS)
def test_the_readme_runs(python: Path, platform_up: LocalPlatform, web: SampleSite, folder: Path, block: int) -> None:
    pages = (PROJECT / "README.md", ROOT / "README.md")
    programs = [one for page in pages for one in blocks(page, "python", platform_up, web.url("/photo.jpg"))]
    assert len(programs) == len(WORDS)
    printed = _run(python, "-I", "-c", programs[block], cwd=folder)
    for word in WORDS[block]:
        assert word in printed, printed


def test_its_types_hold_where_it_is_installed(python: Path, platform_up: LocalPlatform, folder: Path) -> None:
    for number, program in enumerate(blocks(PROJECT / "README.md", "python", platform_up, "https://example.com/")):
        (folder / f"readme{number}.py").write_text(program)
    (folder / "readme-stubs.py").write_text(STUBS)
    files = sorted(folder.glob("readme*.py"))
    options = ("--strict", "--python-executable", str(python), "--config-file", os.devnull)
    said = _run(sys.executable, "-m", "mypy", *options, *files, cwd=folder)
    assert f"no issues found in {len(files)} source files" in said
