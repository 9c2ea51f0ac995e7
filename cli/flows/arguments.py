"""What most commands about runs are given."""

from typing import Annotated, TypeAlias

import typer

Run: TypeAlias = Annotated[str, typer.Argument(help="The run, as `flows start` and `flows list` print it.")]
Tenant: TypeAlias = Annotated[
    str, typer.Option(help="Whose run it is, where the token does not say and the id alone is not enough.")
]
StepKey: TypeAlias = Annotated[str, typer.Argument(metavar="STEP", help="The step, as `flows get` prints it.")]
