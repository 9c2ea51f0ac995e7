"""Words that docs/glossary.md replaces do not come back into what people read.

Run by `make lint`. What people read are pages (without code), comments of protos, the text of `--help`, the help of
metrics, and the messages of errors. Each complaint names the word to use. A new word goes into the glossary and into
`WORDS`; what stands between backticks is a name, and is not looked at.
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
    r"(?<!dead )(?<!dead-)letters?": "dead letter",
    r"bur(?:y|ies|ied)|doomed": "dead-letter",
    r"suspects?|runs? alone": "isolated run",
    r"workers? (?:of others|elsewhere)|lent|lend(?:s|ing)?": "remote worker, remote lease",
    r"tells?|told": "publish, report, return, notify or log, with its actor",
    r"bells?|kicks?|stirs?|beckons?": "wake, notify",
    r"tid(?:y|ier|ies)|housekeeping": "retention, compaction, vacuum, prune",
    r"cancell(?:ed|ing)": "canceled",
    r"holes?": "gap",
    r"deeds?": "plan, executor",
    r"jobs? of (?:a |the )?(?:task|manifest|file)s?|(?:task|manifest|file)'s jobs?": "task job, fetch job, file job",
    r"runs of flows|a run of a flow": "flow run",
}
"""A pattern of whole words, and what to write instead."""

_Found: TypeAlias = tuple[int, str]
_WORDS: Final = [(re.compile(rf"(?<![\w./-])(?:{found})(?![\w/-])", re.IGNORECASE), use) for found, use in WORDS.items()]
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_NAMES: Final = re.compile(r"`[^`]*`|\]\([^)]*\)|\"[^\"\n]*\"(?=\])", re.DOTALL)
_COMMENT: Final = re.compile(r"//(.*)$")
_HELP: Final = frozenset({"help", "short_help", "epilog"})


def problems(path: Path, text: str) -> list[_Found]:
    """Line and complaint for each word of one file that is not to be used, in order."""
    return sorted(
        (prose.count("\n", 0, match.start()) + first, f"{match[0]!r}: write {use}")
        for first, prose in _prose(path, text)
        for pattern, use in _WORDS
        for match in pattern.finditer(prose)
    )


def _prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """What people read of a file, each piece with its first line; names in it are blank."""
    if path.suffix == ".md":
        yield 1, _without(_NAMES, _without(_FENCE, text))
    elif path.suffix == ".proto":
        lines = (_COMMENT.search(line) for line in text.splitlines())
        yield 1, _without(_NAMES, "\n".join(line[1] if line else "" for line in lines))
    else:
        for first, piece in _strings(ast.parse(text), "metrics" in path.name):
            yield first, _without(_NAMES, piece)


def _without(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: "\n" * match[0].count("\n") + " ", text)


def _strings(tree: ast.Module, metrics: bool) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield from _constants(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_command(node):
            yield node.lineno, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _HELP:
                    yield from _constants(keyword.value)
            if ast.unparse(node.func) == "group" or (metrics and len(node.args) > 1):
                yield from _constants(node)


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("command" in ast.unparse(decorator) or "callback" in ast.unparse(decorator) for decorator in node.decorator_list)


def _constants(node: ast.AST) -> Iterator[tuple[int, str]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
            yield part.lineno, part.value


def _files(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if path.is_file():
            yield path
        for suffix in ("md", "proto", "py"):
            yield from sorted(path.rglob(f"*.{suffix}"))


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
