"""The linter of job spans: it passes our source, and catches each way to leave a job in the dark."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOOD = """
class Runner:
    async def __call__(self, claim) -> Outcome:
        with tracing.job_span(queue="q", job_id=claim.job_id) as span:
            outcome = await self.do(claim)
            span.outcome(outcome)
        return outcome
"""


def _lint(tmp_path: Path, source: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "runner.py").write_text(source)
    argv = [sys.executable, str(ROOT / "tools" / "check_spans.py"), str(tmp_path)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.req("R002-tracing.05")
def test_what_is_complete_passes(tmp_path: Path) -> None:
    done = _lint(tmp_path, GOOD)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.req("R002-tracing.05")
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('queue="q", ', "", "runner.py:4: job_span: lacks queue="),
        (", job_id=claim.job_id", "", "job_span: lacks job_id="),
        ("            span.outcome(outcome)\n", "", "never says .outcome"),
        ("span.outcome(outcome)", "other.outcome(outcome)", "never says .outcome"),
        (" as span", "", "never says .outcome"),
        ("with tracing.job_span(", "with tracing.span('job', ", "Runner does jobs, and opens no tracing.job_span"),
        ("with tracing.job_span(", "with tracing.span('job', ", "is made by tracing.job_span"),
        ("class Runner", "from opentelemetry import trace\nclass Runner", "spans are made by kernel.telemetry.tracing"),
        ("class Runner", "import opentelemetry.trace\nclass Runner", "spans are made by kernel.telemetry.tracing"),
    ],
)
def test_each_omission_is_caught(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    done = _lint(tmp_path, GOOD.replace(old, new))
    assert done.returncode == 1
    assert problem in done.stderr


@pytest.mark.req("R002-tracing.05")
def test_a_span_that_is_not_entered_is_caught(tmp_path: Path) -> None:
    done = _lint(tmp_path, 'span = tracing.job_span(queue="q", job_id="j")\n')
    assert done.returncode == 1
    assert "runner.py:1: job_span: is no context of a with block" in done.stderr


@pytest.mark.req("R002-tracing.05")
def test_make_lint_runs_it_over_what_does_jobs() -> None:
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert "tools/check_spans.py" in lint
    assert "worker_svc" in lint.partition("check_spans.py")[2]
    argv = [sys.executable, "tools/check_spans.py", "worker_svc"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
