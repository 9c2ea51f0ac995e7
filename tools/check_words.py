"""Words that docs/glossary.md replaces do not come back into what people read.

Run by `make lint`. What people read are pages (without code), comments of protos, the text of `--help` and of notes,
the help of metrics, the texts of alerts and dashboards, and the messages of errors. Each complaint names the word to
use. A new word goes into the glossary and into `WORDS`; what stands between backticks is a name, and is not looked at.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

WORDS: Final = {
    r"lanes?": "consumer, queue, shard or partition",
    r"beats?|byes?": "heartbeat, deregister",
    r"takeovers?|strays?|stranded|leftovers?": "reclaim, orphaned entry",
    r"settl(?:e|es|ed|ing|ements?)|verdicts?": "complete, fail, acknowledge; result",
    r"put(?:s|ting)? (?:off|aside)|park(?:s|ed|ing)?": "defer, schedule a retry, keep",
    r"(?<!dead[ -])letters?(?!, digits)": "dead letter",
    r"bur(?:y|ies|ied)|doomed": "dead-letter",
    r"suspects?|runs? alone": "isolated run",
    r"workers? (?:of others|elsewhere)|lent|lend(?:s|ing)?": "remote worker, remote lease; worker beside FetchBox",
    r"tells?|told": "publish, report, return, notify or log, with its actor",
    r"bells?|kicks?|stirs?|beckons?": "wake, notify",
    r"tid(?:y|ier|ies)|housekeeping": "retention, compaction, vacuum, prune",
    r"cancell(?:ed|ing)": "canceled",
    r"holes?": "gap",
    r"one's own|ours": "custom, of the handler, FetchBox's",
    r"deeds?": "plan, executor",
    r"jobs? of (?:tasks|manifests|files)|job of (?:a|the) (?:task|manifest|file)|(?:task|manifest|file)'s jobs?": (
        "task job, fetch job, file job"
    ),
    r"runs of flows|a run of a flow": "flow run",
}
"""A pattern of whole words, and what to write instead."""

GLOSSARY: Final = "glossary.md"
"""The page that has these words, to say what to write instead."""

_Found: TypeAlias = tuple[int, str]
_WORDS: Final = [
    (re.compile(rf"(?<![\w./-])(?:{found})(?![\w/-])".replace(" ", r"\s"), re.IGNORECASE), use)
    for found, use in WORDS.items()
]
_INDENT: Final = re.compile(r"^[ \t]+", re.MULTILINE)
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_NAMES: Final = re.compile(r"`[^`]*`|\]\([^)]*\)", re.DOTALL)
_COMMENT: Final = re.compile(r"//(.*)$")
_CHECKS: Final = re.compile(r"config|check|rules")
"""Modules that yield the complaints about a configuration or a document."""
_TEXT: Final = re.compile(r"\b(?:summary|description|title)\"?: (.*)$")
_DEPLOYED: Final = (".yml", ".json")
"""Alerts and dashboards."""
_READ: Final = (".md", ".proto", ".py", *_DEPLOYED)
_ASIDE: Final = frozenset({GLOSSARY, "alerts_test.yml"})
_FOREIGN: Final = frozenset({"node_modules", ".venv", "adr"})
_SAID: Final = ("group", "out.note", "typer.echo", "typer.confirm")
_HELP: Final = frozenset({"help", "short_help", "epilog"})


def problems(path: Path, text: str) -> list[_Found]:
    """Line and complaint for each word of one file that is not to be used, in order."""
    return sorted(
        (prose.count("\n", 0, match.start()) + first, f"{match[0]!r}: write {use}")
        for first, piece in _prose(path, text)
        for prose in [_INDENT.sub("", piece)]
        for pattern, use in _WORDS
        for match in pattern.finditer(prose)
    )


def _prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """What people read of a file, each piece with its first line; names in it are blank."""
    if path.suffix == ".md":
        yield 1, _without(_NAMES, _without(_FENCE, text))
    elif path.suffix in _DEPLOYED:
        found = (_TEXT.search(line) for line in text.splitlines())
        yield 1, _without(_NAMES, "\n".join(line[1] if line else "" for line in found))
    elif path.suffix == ".proto":
        lines = (_COMMENT.search(line) for line in text.splitlines())
        yield 1, _without(_NAMES, "\n".join(line[1] if line else "" for line in lines))
    else:
        for first, piece in _strings(ast.parse(text), path.stem):
            yield first, _without(_NAMES, piece)


def _without(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: "\n" * match[0].count("\n") + " ", text)


def _strings(tree: ast.Module, module: str) -> Iterator[tuple[int, str]]:
    """The messages of errors, the text of `--help` and, in the module `metrics`, the help of those."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Yield) and _CHECKS.search(module)):
            yield from _constants(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_command(node):
            yield node.lineno, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _HELP:
                    yield from _constants(keyword.value)
            if ast.unparse(node.func) in _SAID or (module == "metrics" and len(node.args) > 1):
                yield from _constants(node)


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        "command" in ast.unparse(decorator) or "callback" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def _constants(node: ast.AST) -> Iterator[tuple[int, str]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
            yield part.lineno, part.value


def _files(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        found = [path] if path.is_file() else [one for suffix in _READ for one in sorted(path.rglob(f"*{suffix}"))]
        yield from (one for one in found if one.name not in _ASIDE and not _FOREIGN & {*one.parts})


def main(names: list[str]) -> int:
    """Prints what is wrong with the files, and those of the folders; 1 where there is something."""
    wrong = 0
    for path in _files(names):
        for line, complaint in problems(path, path.read_text()):
            print(f"{path}:{line}: {complaint}")  # noqa: T201  # it is what a linter does
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
