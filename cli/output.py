"""What people and programs read: tables and colours in a terminal, tab-separated text in a pipe, JSON with `--json`.

Results go to stdout, everything about how it goes to stderr.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fetchbox.gateway.v1 import options_pb2
from kernel.foreign_text import visible, visible_json

BROKEN_PIPE = 141
"""The exit code when the reader of a pipe has gone: what a shell shows for SIGPIPE."""

_COLOURS = {
    "completed": "green",
    "done": "green",
    "triggered": "green",
    "ok": "green",
    "stored": "green",
    "replayed": "green",
    "running": "green",
    "alive": "green",
    "closed": "green",
    "in_progress": "cyan",
    "queued": "cyan",
    "scheduled": "cyan",
    "retrying": "magenta",
    "waiting": "yellow",
    "expected": "yellow",
    "timeout": "yellow",
    "cancelled": "yellow",
    "pending": "dim",
    "info": "cyan",
    "partial": "yellow",
    "degraded": "yellow",
    "warn": "yellow",
    "canceled": "yellow",
    "paused": "yellow",
    "half_open": "yellow",
    "dead": "yellow",
    "failed": "red",
    "open": "red",
    "error": "red",
    "unhealthy": "red",
}


class Output:
    """The two streams of this process. `json` is set by the option `--json`, which every command has."""

    def __init__(self) -> None:
        self.json = False

    @property
    def terminal(self) -> bool:
        """Whether a person looks at stdout."""
        return sys.stdout.isatty() and not self.json

    def line(self, text: str = "") -> None:
        """One line of plain text on stdout."""
        self.text(text + "\n")

    def text(self, text: str) -> None:
        """A piece of plain text on stdout, at once."""
        try:
            sys.stdout.write(visible(text))
            sys.stdout.flush()
        except BrokenPipeError:
            _let_go_of_stdout()
            sys.exit(BROKEN_PIPE)
        except OSError as error:
            _let_go_of_stdout()
            sys.exit(f"error: cannot write: {error.strerror}")

    def document(self, value: Mapping[str, Any]) -> None:
        """One JSON document on one line of stdout."""
        self.line(visible_json(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
        """Rows under a header: a box in a terminal, a line a job where it is too narrow, tab-separated in a pipe."""
        if not self.terminal:
            for row in [columns, *rows]:
                self.line("\t".join(_flat(cell) for cell in row))
            return
        console = Console()
        widths = [max(cell_len(str(row[n])) for row in [columns, *rows]) for n in range(len(columns))]
        has_ids = not {"job", "run"}.isdisjoint(columns)  # they are to be copied whole
        if has_ids and sum(widths) + 3 * len(widths) + 1 > console.width:
            _lines(console, columns, rows, widths, title)
            return
        table = Table(*columns, title=title or None, title_justify="left", header_style="bold")
        for row in rows:
            table.add_row(*(coloured(str(cell)) for cell in row))
        console.print(table)

    def facts(self, facts: Mapping[str, object]) -> None:
        """Names and values, one pair a line; empty values are left out."""
        known = {name: value for name, value in facts.items() if str(value) not in {"", "None"}}
        if not self.terminal:
            for name, value in known.items():
                self.line(f"{name}\t{_flat(value)}")
            return
        table = Table.grid(padding=(0, 2))
        for name, value in known.items():
            table.add_row(shown(name, style="bold"), coloured(str(value)))
        Console().print(table)

    def note(self, text: str, style: str = "") -> None:
        """A word to people on stderr; programs (`--json`) get none."""
        if not self.json:
            stderr().print(shown(text, style=style), soft_wrap=True)


out = Output()
"""This process has one stdout."""


def stderr() -> Console:
    """A console on the present stderr, coloured only in a terminal."""
    return Console(stderr=True, highlight=False)


def as_dict(message: Message) -> dict[str, Any]:
    """A message as ProtoJSON with every field, raw JSON fields as the JSON that they hold."""
    value: dict[str, Any] = MessageToDict(message, always_print_fields_with_no_presence=True)
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        if field.GetOptions().Extensions[options_pb2.raw_json]:
            value[field.json_name] = json.loads(getattr(message, field.name) or b"null")
        elif field.message_type is not None:
            value[field.json_name] = _nested(field.message_type, getattr(message, field.name), value[field.json_name])
    return value


def _nested(kind: Any, held: Any, plain: Any) -> Any:
    """What a field holds whose type is a message with the descriptor `kind`; messages not of ours stay as they are."""
    if kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"].message_type
        return plain if of is None else {str(key): _nested(of, held[key], plain[str(key)]) for key in held}
    if not kind.file.package.startswith("fetchbox."):
        return plain
    return as_dict(held) if isinstance(held, Message) else [as_dict(one) for one in held]


def _lines(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int], title: str
) -> None:
    """Each row on a line of its own, which the terminal wraps: what is in it can be copied in one piece."""
    if title:
        console.print(shown(title, style="italic"))
    for number, row in enumerate([columns, *rows]):
        line = Text("  ").join(
            coloured(str(cell)) + " " * (width - cell_len(str(cell))) for cell, width in zip(row, widths, strict=True)
        )
        line.rstrip()
        console.print(line, style="" if number else "bold", soft_wrap=True)


def shown(text: str, style: str = "", overflow: Literal["fold"] | None = None) -> Text:
    """Text for a terminal. Whatever others have put into it, the terminal shows it and obeys none of it."""
    return Text(visible(text), style=style, overflow=overflow)


def coloured(text: str) -> Text:
    """A word in the colour that it has everywhere; other words as they are."""
    return shown(text, style=_COLOURS.get(text, ""), overflow="fold")


def _flat(cell: object) -> str:
    return " ".join(str(cell).split())


def _let_go_of_stdout() -> None:
    """What could not be written is dropped, or the interpreter complains at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
