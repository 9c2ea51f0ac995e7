"""The kind of command that all of ours are: it has `--json`, and an example in its help."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from cli.output import out

_Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON: one document, or one a line where there are many. Errors are JSON too."),
]


def command(group: typer.Typer, name: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a function to a group as a command, together with the option `--json`."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*args: Any, as_json: bool, **arguments: Any) -> None:
            out.json = out.json or as_json
            function(*args, **arguments)

        signature = inspect.signature(function)
        option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Json)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what inspect.signature looks at
            parameters=[*signature.parameters.values(), option]
        )
        run.__annotations__ = {**function.__annotations__, "as_json": _Json}
        group.command(name or None)(run)
        return function

    return add


def group(help_text: str) -> typer.Typer:
    """A group of commands, which shows its help when none is named."""
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode="markdown")
