"""What most commands about runs are given."""

from typing import Annotated, TypeAlias

import typer

Run: TypeAlias = Annotated[str, typer.Argument(help="The run, as `flows start` and `flows list` print it.")]
StepKey: TypeAlias = Annotated[str, typer.Argument(metavar="STEP", help="The step, as `flows get` prints it.")]
