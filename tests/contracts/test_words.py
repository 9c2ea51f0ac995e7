"""The words that people read: those of docs/glossary.md, and none that only the authors know."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = (
    *("kernel", "flows", "ingest_svc", "worker_svc", "operator_svc", "producer_svc", "pipeline", "gateway", "cli"),
    *("examples", "tools"),
)

_CITED = re.compile(r"seeds?[ _-]?00\d|contracts?[ ,(]+00\d|\b(?<![\d,._-])00[0-4]'s|contracts\.md|§", re.IGNORECASE)
"""How a source of the requirements is cited. Only tests and decisions may: nobody else knows it."""
_KINDS = re.compile(
    r"job of (?:a|the) (?:task|manifest)\b|jobs of (?:tasks|manifests)|(?:task|manifest)'s job\b|\bruns of flows",
    re.IGNORECASE,
)
"""The four kinds of work under other names than fetch job, task job, file job and flow run."""
_SEED = re.compile(r"\bseeds?\b", re.IGNORECASE)
_OF_RANDOM_NUMBERS = ("benchmarks", "Makefile", ".ci", "gen/fetchbox/openapi.html")
_TEXTS = {
    ".py",
    ".pyi",
    ".lua",
    ".proto",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".html",
    ".j2",
    ".sh",
    ".mjs",
    ".js",
}
_ELSEWHERE = {"tests", "third_party", "node_modules", "__pycache__", "dist", "results", "adr"}


def _files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name not in _ELSEWHERE and (not path.name.startswith(".") or path.name == ".ci"):
                yield from _files(path)
        elif path.suffix in _TEXTS or path.name in ("Makefile", "Dockerfile", "run"):
            yield path


def _lines_with(pattern: re.Pattern[str], *but: str) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in ((str(path.relative_to(ROOT)), path.read_text()) for path in _files())
        if not name.startswith(but) and pattern.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_only_tests_and_decisions_cite_the_sources_of_the_requirements() -> None:
    assert len(list(_files())) > 500
    assert _lines_with(_CITED) == []
    assert _lines_with(_SEED, *_OF_RANDOM_NUMBERS) == []


def test_the_kinds_of_work_have_one_name_each_in_code_and_pages() -> None:
    assert _lines_with(_KINDS, "docs/glossary.md", "tools/check_words.py", "CHANGELOG.md") == []


def test_citations_are_recognised() -> None:
    for cited in ("(seed 003, 1.2)", "_SEED_002", "as contracts 002 say", "by 004's keys", "see contracts.md", "§2.1"):
        assert _CITED.search(cited), cited
    for other in ("--seed 7", "`epochs/{table}/part=003/000002.json`", "1,002 jobs", "# noqa: BLE001 - any"):
        assert not _CITED.search(other), other


@pytest.fixture(scope="module")
def linter() -> ModuleType:
    """The check of words that `make lint` runs."""
    spec = importlib.util.spec_from_file_location("check_words", ROOT / "tools/check_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        (
            "page.md",
            "The lane\nis told.\n```\na lane\n```\nA dead\n  letter, `parked`, [x](lane.md).\nletters\n",
            [1, 2, 8],
        ),
        ("a.proto", "// Settles it.\nmessage Lane {}\nstring park = 1; // parked\n", [1, 3]),
        ("a.py", '"""The lane."""\nlane = 1\nraise ValueError(f"{lane} of a lane")\n', [3]),
        ("a.py", 'Option(help="What was put off.")\ngroup("Look at lanes.")\n', [1, 2]),
        ("a.py", '@app.command()\ndef run():\n    """Tell it."""\n', [2]),
        ("metrics.py", '_counter("settled_tasks", "Settled tasks.")\n', [1]),
        ("alerts.yml", "summary: 'Work was put off'\ncomment: lanes\n", [1]),
        ("board.json", '{\n"title": "Lanes",\n"expr": "told"}\n', [2]),
        ("config_checks.py", 'yield "lanes.key", "must not be a lane"\n', [1]),
    ],
)
def test_each_thing_that_people_read_is_checked(linter: ModuleType, name: str, text: str, lines: list[int]) -> None:
    assert [line for line, _ in linter.problems(Path(name), text)] == lines


def test_the_glossary_has_every_word_that_is_checked(linter: ModuleType) -> None:
    rows = (ROOT / "docs" / linter.GLOSSARY).read_text().splitlines()
    refused = "\n".join(row.split("|")[-2] for row in rows if row.startswith("| "))
    for pattern in linter.WORDS:
        assert re.search(pattern, refused), pattern


def test_lint_checks_the_words_of_pages_protos_and_rooms() -> None:
    makefile = (ROOT / "Makefile").read_text()
    checked = makefile.partition("tools/check_words.py ")[2].partition("\n")[0].split()
    assert {"README.md", "docs", "proto", "$(ROOMS)"} <= {*checked}


def test_a_class_has_a_name_of_its_own() -> None:
    """Whoever reads a name finds one class; classes of one file, which begin with `_`, are that file's."""
    found: dict[str, list[str]] = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
