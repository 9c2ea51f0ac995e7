"""`make bench-smoke`, which CI runs, starts every benchmark."""

from pathlib import Path

from benchmarks.smoke import SIZES

ROOT = Path(__file__).parents[2]


def test_every_benchmark_is_started() -> None:
    programs = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if '"__main__"' in path.read_text()}
    assert set(SIZES) == programs - {"smoke"}
    assert " bench-smoke " in (ROOT / ".ci/run").read_text()
