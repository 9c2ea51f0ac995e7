"""`fetchbox lake status`: what is in the lake, and how far exporters are behind."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.filesize import decimal

from cli.command import command
from cli.lake.problems import lake_problems, with_store
from cli.output import out
from cli.settings import settings

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import Config
    from pipeline.lake.status import TableStatus

app = typer.Typer()
_COLUMNS = ("table", "from", "to", "days", "compacted", "segments", "rows", "size", "quarantined", "behind")


@command(app)
def status(context: typer.Context) -> None:
    """Show what is in the lake: days, rows, bytes, how far exporters are behind, and gaps.

    It needs the extra `export`, and starts no Java.

    `fetchbox lake status`
    """
    config = with_store(settings(context).load())
    with lake_problems():
        from pipeline.extras import require  # noqa: PLC0415  # a layer that most commands do not need

        require("export")
        found, lags = asyncio.run(_look(config))
    if out.json:
        out.document({"tables": [{**asdict(one), "lag_ms": lags.get(one.table)} for one in found]})
        return
    out.table(_COLUMNS, [_row(one, lags) for one in found])
    for one in found:
        for epoch in one.epochs:
            missing = f"{epoch.missing:,} entries are missing" if epoch.missing else "it is not known what is missing"
            where = f"{epoch.table}, partition {epoch.partition}, epoch {epoch.epoch}"
            out.note(f"{where}: {epoch.reason} between {epoch.after} and {epoch.until}; {missing}", "yellow")
    if not lags:
        out.note("Redis does not answer: how far exporters are behind is not known", "yellow")


async def _look(config: "Config") -> "tuple[list[TableStatus], dict[str, int]]":
    from kernel.objects import ObjectStore  # noqa: PLC0415  # 0.5 s that other commands need not pay
    from pipeline.lake.status import look  # noqa: PLC0415  # imports an extra
    from pipeline.lake.store import LakeStore  # noqa: PLC0415
    from pipeline.retention.looking import look as listed  # noqa: PLC0415

    objects = ObjectStore(config.object_store)
    try:
        store = LakeStore(objects, config)
        found = await look(store, await listed(store))
    finally:
        await objects.close()
    return found, await _lags(config, found)


async def _lags(config: "Config", found: "list[TableStatus]") -> dict[str, int]:
    """Empty where Redis does not answer: what is in the lake is known without it."""
    from kernel.errors import FetchboxError  # noqa: PLC0415  # as above
    from kernel.redis.clients import RedisClients  # noqa: PLC0415
    from pipeline.lake.status import lags  # noqa: PLC0415

    try:
        clients = await RedisClients.open(config.redis)
    except FetchboxError:
        return {}
    try:
        return await lags(clients, config, found)
    except FetchboxError:
        return {}
    finally:
        await clients.close()


def _row(one: "TableStatus", lags: dict[str, int]) -> tuple[object, ...]:
    behind = f"{lags[one.table] / 1000:.1f} s" if lags.get(one.table) else ""
    return (
        one.table,
        one.first_day,
        one.last_day,
        one.days,
        one.compacted_days,
        one.segments,
        one.rows,
        decimal(one.bytes),
        one.quarantined or "",
        behind,
    )
