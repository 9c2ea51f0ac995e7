"""`fetchbox lake …`."""

from cli.command import group
from cli.lake import retain, status

app = group("Show the lake, and enforce its retention.")
for single in (status.app, retain.app):
    app.add_typer(single)
