"""The command itself."""

import typer

from cli.command import command
from cli.problems import SOME_FAILED

app = typer.Typer()


@command(app)
def demo() -> None:
    """Run everything once: embedded servers, every service, a sample site, and the proof. Leaves nothing behind.

    Exits with 0 when every resource ended as it must, with 1 otherwise.

    `fetchbox demo`
    """
    from cli.demo.run import run  # noqa: PLC0415  # a web server and storage clients: 0.8 s that others need not pay

    if run():
        raise typer.Exit(SOME_FAILED)
