"""`fetchbox export`: the streams into the lake."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from cli.bar import Bar
from cli.command import command
from cli.lake.problems import lake_problems, with_store
from cli.output import out
from cli.serve import Role, run
from cli.settings import settings

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import Config

app = typer.Typer()


@command(app)
def export(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="End when everything up to now is in the lake.")] = False,
) -> None:
    """Write what is on the streams into the lake, as Parquet in the object store, until SIGTERM or Ctrl-C.

    It does what `fetchbox serve --role=exporter` does, and needs the extra `export`. Any number of them may
    run, also beside `fetchbox up`: each entry is written once. With --once nothing waits for its segment to fill.

    `fetchbox export --once`

    `fetchbox --config fetchbox.toml export`
    """
    config = with_store(settings(context).load())
    with lake_problems():
        from pipeline.extras import require  # noqa: PLC0415  # a layer that most commands do not need

        require("export")
        if not once:
            run(config, [Role.EXPORTER])
            return
        count = asyncio.run(_once(config))
    if out.json:
        out.document({"exported": count})
    else:
        out.note("nothing was new: the lake has everything" if not count else f"{count:,} entries are in the lake now")


async def _once(config: "Config") -> int:
    from kernel.service.resources import Resources  # noqa: PLC0415  # 0.5 s that other commands need not pay
    from pipeline.bootstrap import finish  # noqa: PLC0415

    resources = await Resources.open(config)
    try:
        with _Entries() as shown:
            return await finish(config, resources, shown.update)
    finally:
        await resources.close()


class _Entries(Bar):
    """Counts entries."""

    def __init__(self) -> None:
        columns = (BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f} entries"), TimeElapsedColumn())
        super().__init__(*columns, total=1, vanishes=True)

    def update(self, done: int, total: int) -> None:
        """So many entries of so many are in the lake."""
        self.show(completed=done, total=max(1, total))
