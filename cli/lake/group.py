"""`fetchbox lake …`."""

from cli.command import group
from cli.lake import retain, status

app = group("Look at the lake, and keep it in order.")
for single in (status.app, retain.app):
    app.add_typer(single)
