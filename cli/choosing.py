"""What a command is to work on, where that may be thousands; and the yes that deleting needs."""

import sys

import typer

from cli.problems import USAGE, CommandError

PART = 500
"""What one call takes."""


def parts(names: list[str]) -> list[list[str]]:
    """The names in portions of one call each; one empty portion for none."""
    return [names[at : at + PART] for at in range(0, len(names), PART)] or [[]]


def confirm(question: str, *, yes: bool) -> None:
    """Asks, unless the yes is given already. Raises a CommandError where nobody is there to be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("a purge asks for confirmation, and stdin is no terminal", USAGE, hint="Add --yes.")
    typer.confirm(question, abort=True)
