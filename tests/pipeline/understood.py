"""Whether the command line understands arguments, without running anything."""

from collections.abc import Sequence
from typing import Any

import typer.main

from cli.main import app
from pipeline import job


def command(arguments: Sequence[str]) -> list[str]:
    """The names of the command that `fetchbox …` would run; what click raises where it would complain."""
    program, *rest = arguments
    assert program.rpartition("/")[2] == "fetchbox"
    found, parent = typer.main.get_command(app), None
    names = []
    while True:
        context: Any = found.make_context(names[-1] if names else "fetchbox", rest, parent=parent)
        if not hasattr(found, "resolve_command"):
            return names
        name, found, rest = found.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None
        names.append(name)
        parent = context


def job_of_spark(arguments: Sequence[str]) -> str:
    """The job that `spark-submit …/lake.py …` or `python -m fetchbox.lake …` would run."""
    place = next(n for n, word in enumerate(arguments) if word.endswith(("fetchbox.lake", "lake.py")))
    asked = job._parser().parse_args(list(arguments[place + 1 :]))
    return str(asked.run.__name__.removeprefix("_"))
