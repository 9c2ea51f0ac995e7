"""The program that the page of flows shows runs, without any server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.req("R003-3.1.03", "R003-3.1.06", "R003-3.1.07", "R003-3.1.08", "R003-1.01", "R003-1.02")
def test_the_program_of_the_page_stores_a_run_in_files(tmp_path: Path) -> None:
    section = (ROOT / "docs/flows.md").read_text().split("## In a program of your own")[1].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    path = os.pathsep.join((str(ROOT), str(ROOT / "gen")))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert [line for line in lines if line.startswith("published")] == ["published flow.start"]
    patches = [line for line in lines if line.startswith("flow.snapshot.patch ")]
    assert [line.partition('"lastEventAt"')[0] for line in patches] == [
        'flow.snapshot.patch {"status":"running","flowName":"harvest","flowId":"run-1","startedAt":'
        + re.findall(r'"startedAt":("[^"]*"),', patches[0])[0]
        + ",",
        'flow.snapshot.patch {"logsCountDelta":1,"lastLogLevel":"info",',
    ]
    assert any(b'"kind":"flow.start"' in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
