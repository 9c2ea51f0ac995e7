"""`fetchbox flows definitions`: the flows of a configuration."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command import command
from cli.output import as_dict, out
from cli.problems import USAGE, CommandError
from cli.settings import settings

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import FlowGate, FlowStep

app = typer.Typer()


@command(app)
def definitions(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="TOML or YAML; default: that of `fetchbox --config`.")] = None,
) -> None:
    """Check the flows of a configuration, and show their steps. No server is asked.

    `fetchbox flows definitions --config fetchbox.toml`
    """
    from flows.definitions.definition import (  # noqa: PLC0415  # 0.3 s for this command alone
        order_of_steps,
        with_defaults,
    )

    loaded = settings(context).load(config)
    flows = {name: with_defaults(loaded, name) for name in sorted(loaded.flows)}
    if not flows:
        raise CommandError(
            "this configuration has no flows", USAGE, hint="Name one that has a table [flows.NAME]: --config FILE."
        )
    if out.json:
        out.document({name: as_dict(flow) for name, flow in flows.items()})
        return
    rows = [
        (name, key, ", ".join(flow.steps[key].needs), _work(flow.steps[key]), _gate(flow.steps[key].gate))
        for name, flow in flows.items()
        for key in order_of_steps(flow)
    ]
    out.table(("flow", "step", "needs", "does", "gate"), rows)


def _work(step: "FlowStep") -> str:
    for kind in ("task", "handler", "job_type"):
        if name := getattr(step, kind):
            return f"{kind} {name}"
    return "waits"


def _gate(gate: "FlowGate") -> str:
    return " ".join(filter(None, (gate.reason, gate.channel, gate.key)))
