"""What goes wrong within Spark, as one can read it: without stacks of Java and without plans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PLACE: Final = re.compile(r";? \(?line (\d+),? pos (\d+)(?:\)|;?$|;?\n'.*)", re.DOTALL)
"""Where in a query, and the plan behind it."""
_STATE: Final = re.compile(r" SQLSTATE: \w{5}")
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_OF_WORKER: Final = re.compile(r"^(?:[\w.]*\.)?(LakeFileError|ObjectStoreError): (.*)$", re.MULTILINE)


class SparkFault(RuntimeError):  # noqa: N818  # SparkError would be taken for one of Spark's own
    """Spark gave up. `condition` is its name for why, empty where it has none; `parameters` are what it is about."""

    def __init__(self, message: str, condition: str = "", parameters: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.condition = condition
        self.parameters = parameters or {}


class ReadError(RuntimeError):
    """A task could not read the lake; the message names the file. `unavailable`: the object store did not answer."""

    def __init__(self, message: str, *, unavailable: bool) -> None:
        super().__init__(message)
        self.unavailable = unavailable


@contextmanager
def readable() -> Iterator[None]:
    """Turns what Spark raises inside into SparkFault, or ReadError where it is about a file of the lake."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # of an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except PySparkException as error:
        raise fault(str(error), error.getCondition() or "", error.getMessageParameters()) from error
    except Py4JJavaError as error:
        raise fault(str(error.java_exception.getMessage())) from error


def fault(text: str, condition: str = "", parameters: dict[str, str] | None = None) -> SparkFault | ReadError:
    """The error for a message of Spark's."""
    of_worker = _OF_WORKER.search(text)
    if of_worker is not None:
        return ReadError(of_worker[2], unavailable=of_worker[1] == "ObjectStoreError")
    short = _PLACE.sub(r" (line \1, column \2)", text.strip().partition("\n\tat ")[0])
    return SparkFault(_CONDITION.sub("", _STATE.sub("", short)).strip(), condition, parameters)
