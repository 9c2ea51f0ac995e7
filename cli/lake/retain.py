"""`fetchbox lake retain`: what is over goes, closed days are compacted."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from cli.command import command
from cli.lake.problems import lake_problems, spark_problems, with_store
from cli.lake.steps import Steps
from cli.output import out
from cli.problems import SOME_FAILED
from cli.settings import settings
from kernel.clock import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.retention.deed import DeedOutcome
    from pipeline.retention.verdicts import RetentionDecision, RetentionPlan

app = typer.Typer()
_STEPS_BESIDE = 2


@command(app)
def retain(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and why.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show what is kept, too.")] = False,
) -> None:
    """Drop what is older than the configuration keeps it, and compact days that are closed.

    Run it once a day. Two at once, and one that was interrupted, do no harm. It needs the extra `export`.
    Java is started only where a day is to be compacted; that needs the extra `spark`.

    Exit codes: 0 all is done, 1 some is left for the next run, 2 wrong usage or configuration, 4 unavailable.

    `fetchbox lake retain --dry-run`

    `fetchbox --config fetchbox.toml lake retain`
    """
    config = with_store(settings(context).load())
    with lake_problems():
        from pipeline.extras import require  # noqa: PLC0415  # a layer that most commands do not need

        require("export")
        from pipeline.retention.run import Retention  # noqa: PLC0415

        with Retention(config) as retention:
            plan = retention.plan()
            if not out.json or dry_run:
                _show(plan, every=every)
            if dry_run:
                return
            with Steps(len(plan.compactions) + _STEPS_BESIDE) as steps:
                outcome = retention.run(plan, _session, steps.begin)
    _tell(outcome)
    if not outcome.well:
        raise typer.Exit(SOME_FAILED)


def _session() -> "SparkSession":
    from pipeline.spark.session import session  # noqa: PLC0415  # starts a JVM

    with spark_problems():
        return session()


def _show(plan: "RetentionPlan", *, every: bool) -> None:
    shown = [one for one in plan.decisions if every or one.verdict != "keep"]
    groups: dict[tuple[str, str, str, str], list[RetentionDecision]] = defaultdict(list)
    for one in shown:
        groups[one.verdict.value, one.area, one.day.isoformat() if one.day else "", one.why].append(one)
    if out.json:
        out.document(_document(plan, groups))
        return
    rows = [(*key, len(of), decimal(_bytes(of))) for key, of in sorted(groups.items())]
    if rows:
        out.table(("what", "where", "day", "why", "objects", "size"), rows)
    for words in plan.over:
        out.note(words, "yellow")
    if plan.empty:
        out.note("there is nothing to do", "green")


def _document(
    plan: "RetentionPlan", groups: "dict[tuple[str, str, str, str], list[RetentionDecision]]"
) -> dict[str, Any]:
    names = ("verdict", "area", "day", "why")
    return {
        "at": written(datetime.fromtimestamp(plan.now_ms / 1000, UTC)),
        "decisions": [
            {**dict(zip(names, key, strict=True)), "objects": len(of), "bytes": _bytes(of)}
            for key, of in sorted(groups.items())
        ],
        "over": list(plan.over),
    }


def _tell(outcome: "DeedOutcome") -> None:
    if out.json:
        out.document({name: getattr(outcome, name) for name in outcome.__dataclass_fields__})
        return
    facts = {
        "deleted": f"{outcome.deleted:,} objects, {decimal(outcome.deleted_bytes)}",
        "retired": len(outcome.retired) or "",
        "compacted": f"{len(outcome.compacted)} days, {outcome.rows:,} rows" if outcome.compacted else "",
        "done by another": len(outcome.outrun) or "",
    }
    out.facts(facts)
    for words in (*outcome.failed, *(f"{key}: {why}" for key, why in outcome.remaining.items())):
        out.note(f"left for the next run: {words}", "yellow")


def _bytes(decisions: "Iterable[RetentionDecision]") -> int:
    return sum(one.info.size for one in decisions)
