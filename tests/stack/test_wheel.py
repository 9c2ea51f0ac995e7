"""An installed wheel in an empty folder: one top-level name, which no other package can shadow, and it runs."""

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.sample_site import SampleSite
from tests.stack.conftest import CommandLine
from tests.stack.test_up import running

ROOT = Path(__file__).parents[2]
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
ROOMS = {Path(room).name for room in HOOK["custom"]["rooms"]}
DECOYS = (*ROOMS, "handlers")
HANDLERS = """
from typing import Any

from fetchbox.handlers import (
    JobHandler, Manifest, PreparedManifest, StepHandler, StorageHint, SyncTaskRun, TaskHandler, TaskRun
)


class Shout(TaskHandler):
    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        return payload["prompt"].upper()


class Whisper(TaskHandler):
    def run(self, payload: dict[str, Any], run: SyncTaskRun) -> Any:
        return payload["prompt"].lower()


class Measure(StepHandler):
    async def run(self, payload: Any, run: TaskRun) -> Any:
        return len(payload)


class First(JobHandler):
    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        return PreparedManifest(manifest, list(manifest.resources[:1]))
"""
CONFIG = """
[tasks.code]
handler = "mine:Shout"

[tasks.plan]
handler = "mine:Whisper"
isolation = "process"

[job_types.first]
handler = "mine:First"
isolation = "process"

[flows.measured.steps.measure]
handler = "mine:Measure"
"""


@dataclass
class Installed(CommandLine):
    """The command `fetchbox` of an environment, where the folder comes first for every import."""

    program: Path = Path()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a run, with no other path to a package."""
        plain = {name: value for name, value in super().environment.items() if name != "VIRTUAL_ENV"}
        return plain | {"PYTHONPATH": "."} | self.environ

    def argv(self, *args: str) -> list[str]:
        """The command as an argument list."""
        return [str(self.program), *args]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    return next(folder.glob("fetchbox-*.whl"))


@pytest.fixture(scope="module")
def borrowing(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, which takes its dependencies, and nothing of the checkout, from this one."""
    venv = tmp_path_factory.mktemp("venv")
    _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    packages = sysconfig.get_path("purelib")
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv), "platbase": str(venv)}))
    _run(str(venv / "bin/python"), "-m", "installer", str(wheel), environ={"PYTHONPATH": packages})
    (site / "borrowed.pth").write_text(f"{packages}\n")
    (venv / "bin/weed").symlink_to(Path(sysconfig.get_path("scripts")) / "weed")
    return venv


def _run(*argv: str, environ: dict[str, str] | None = None) -> None:
    everything = {**os.environ, **(environ or {})}
    run = subprocess.run(argv, cwd=ROOT, env=everything, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def folder(path: Path, venv: Path) -> Installed:
    """Handlers and their configuration in a folder, beside packages that end whatever imports them."""
    for name in DECOYS:
        decoy = path / name
        decoy.mkdir()
        (decoy / "__init__.py").write_text("raise SystemExit(f'{__name__} is a decoy')\n")
    (path / "mine.py").write_text(HANDLERS)
    (path / "fetchbox.toml").write_text(CONFIG)
    return Installed(path, program=venv / "bin/fetchbox")


@pytest.fixture
def installed(tmp_path: Path, borrowing: Path) -> Installed:
    """The command in such a folder."""
    return folder(tmp_path, borrowing)


def test_the_only_top_level_name_is_fetchbox(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "fetchbox",
        f"{'-'.join(wheel.stem.split('-')[:2])}.dist-info",
    }
    assert "fetchbox/py.typed" in names


def test_nothing_in_it_imports_a_room_by_its_bare_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sources = {name: archive.read(name) for name in archive.namelist() if name.endswith((".py", ".pyi"))}
    assert len(sources) > 500
    for name, source in sources.items():
        assert not set(_imported(source)) & ROOMS, name


def _imported(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def test_it_holds_whatever_the_rooms_and_the_stubs_hold(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folders, place in ((HOOK["custom"]["rooms"], Path("fetchbox/_rooms")), (HOOK["custom"]["public"], Path())):
        for folder in map(ROOT.joinpath, folders):
            held = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
            assert {str(place / path.relative_to(folder.parent)) for path in held} <= names


def test_custom_handlers_run_beside_packages_of_the_same_names(installed: Installed, web: SampleSite) -> None:
    with running(installed, "up", "--any-ports", "--config", "fetchbox.toml", until="^ready"):
        for task, answer in (("code", "HELLO"), ("plan", "hello")):
            run = installed.spawn("jobs", "create", "--task", task, "--payload", '{"prompt": "Hello"}', "--watch")
            assert run.returncode == 0, run
            assert json.loads(run.stdout.splitlines()[-1]) == answer
        resources = [{"id": name, "url": web.url("/images/1.png")} for name in ("a", "b")]
        (installed.directory / "two.json").write_text(json.dumps({"manifest_version": "v1", "resources": resources}))
        run = installed.spawn("submit", "two.json", "--job-type", "first", "--watch", "--json")
        assert run.returncode == 0, run
        job = json.loads(run.stdout.splitlines()[0])["job_id"]
        assert json.loads(installed.spawn("jobs", "get", job, "--json").stdout)["resource_total"] == 1


def test_a_configuration_is_checked_with_the_custom_handlers(installed: Installed) -> None:
    run = installed.spawn("config", "check", "fetchbox.toml")
    assert (run.returncode, run.stdout) == (0, "valid; job types: default, first; tasks: code, plan; flows: measured\n")


def test_a_type_checker_knows_what_handlers_use(installed: Installed, borrowing: Path) -> None:
    wrong = "\n    def finalize_job(self, summary: JobSummary) -> None:\n        print(summary.state)\n"
    (installed.directory / "mine.py").write_text(HANDLERS.replace("JobHandler,", "JobHandler, JobSummary,") + wrong)
    checker = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(borrowing / "bin/python")]
    run = subprocess.run([*checker, "mine.py"], cwd=installed.directory, capture_output=True, text=True, check=False)
    (error, _) = run.stdout.splitlines()
    assert '"JobSummary" has no attribute "state"' in error


@pytest.mark.long
def test_the_demo_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """Nothing but the declared dependencies, as locked."""
    uv = shutil.which("uv") or str(ROOT / ".uv/bin/uv")
    venv, wanted = tmp_path / "venv", tmp_path / "requirements.txt"
    _run(uv, "export", "--frozen", "--quiet", "--no-dev", "--no-emit-project", "--output-file", str(wanted))
    _run(uv, "venv", "--quiet", "--python", sys.executable, str(venv))
    into = (uv, "pip", "install", "--quiet", "--python", str(venv / "bin/python"))
    _run(*into, "--requirements", str(wanted))
    _run(*into, "--no-deps", str(wheel))
    work = tmp_path / "work"
    work.mkdir()
    run = folder(work, venv).spawn("demo")
    assert run.returncode == 0, run
    assert " 0 wrong;" in run.stdout + run.stderr
