"""`fetchbox report --open`, of a report that needs no Spark."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.pipeline.report_samples import report


@pytest.mark.parametrize("browser", [True, False])
def test_the_page_is_opened_where_there_is_a_browser_and_named_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: bool
) -> None:
    opened: list[str] = []

    def show(url: str) -> bool:
        opened.append(url)
        return browser

    monkeypatch.setenv("FETCHBOX_OBJECT_STORE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("webbrowser.open", show)
    monkeypatch.setattr("cli.lake.report._made", lambda *_: report())
    page = tmp_path / "new" / "report.html"
    command = ["report", "--output", str(page.parent)]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert page.exists()
    assert opened == []
    done = CliRunner().invoke(app, [*command, "--open"])
    assert done.exit_code == 0, done.output
    assert opened == [page.resolve().as_uri()]
    assert ("there is no browser here" in done.stderr) is not browser
