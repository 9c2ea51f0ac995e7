"""The session of Spark: on this machine, or within what `spark-submit` has started."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.extras import require
from pipeline.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GIB: Final = 1 << 30
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit` for the Python that it runs."""
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Halves what the start costs, and makes long computations slower."""


def session(
    *,
    master: str = "local[*]",
    timezone: str = "UTC",
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session, started where none runs: 5 to 20 s of CPU, and a JVM that ends with this process.

    Under `spark-submit` the cluster, its memory and its Java are what was submitted, and `master` and `quick` do not
    count. `timezone` (IANA) decides where days begin. `quick` is for a few short queries. `settings` are Spark's own,
    on top of ours; they are seen in the list of processes, so no secret may be among them. ExtraMissingError and
    JavaError say what is to be installed.
    """
    require("spark")
    from pyspark.sql import SparkSession  # noqa: PLC0415  # half a second that only those pay who use it

    _silence()
    starts = _SUBMITTED not in os.environ and SparkSession.getActiveSession() is None
    wanted = _everywhere(timezone) | (_local(master, quick=quick) if starts else {}) | dict(settings or {})
    builder = SparkSession.builder.appName("fetchbox")
    for name, value in wanted.items():
        builder = builder.config(name, value)
    if not starts:
        return builder.getOrCreate()
    with _environment(), _interrupts(), jvm.home(jvm.find()) as home:
        os.environ["JAVA_HOME"] = str(home)
        return builder.getOrCreate()


def _silence() -> None:
    """PySpark writes the stack of Java of each wrong query to stderr, beside the exception that the caller gets.

    So does Py4J with each call that is interrupted, by its own loggers and by that of the root.
    """
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  # as above

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def _interrupts() -> Iterator[None]:
    """Ctrl-C does what it did before: PySpark's handler calls the JVM, by a connection that may wait for an answer."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


def _everywhere(timezone: str) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": timezone,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }


def _local(master: str, *, quick: bool) -> dict[str, str]:
    """One machine: nothing listens beyond loopback, and shuffles have as many parts as there are cores."""
    logging = files(__package__).joinpath("log4j2.properties")
    options = [f"-Dlog4j2.configurationFile={logging}", *([_QUICK] if quick else [])]
    told = {
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    }
    if "SPARK_DRIVER_MEMORY" not in os.environ:
        told["spark.driver.memory"] = f"{_memory() >> 20}m"
    return told


def _memory() -> int:
    """Bytes for the heap: a quarter of the machine's memory, at least 1 GiB and at most 8."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(whole // 4, _GIB), 8 * _GIB)


@contextmanager
def _environment() -> Iterator[None]:
    """Variables that the JVM and its Python workers get at their start; those of this process are as before."""
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    # Otherwise the workers run whatever `python3` is on the PATH, which has none of our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
