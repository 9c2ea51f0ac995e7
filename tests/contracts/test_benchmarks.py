"""`make bench-smoke`, which CI runs, starts every benchmark."""

from pathlib import Path

from benchmarks.smoke import SIZES

ROOT = Path(__file__).parents[2]


def test_every_benchmark_is_started() -> None:
    benchmarks = (path for path in (ROOT / "benchmarks").glob("*.py") if "ArgumentParser(" in path.read_text())
    assert {*SIZES, "smoke"} == {path.stem for path in benchmarks}
    assert " bench-smoke " in (ROOT / ".ci/run").read_text()
