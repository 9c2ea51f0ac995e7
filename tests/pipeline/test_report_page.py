"""The page and the files of a report."""

import base64
import csv
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.reports import files
from pipeline.reports.page import document
from pipeline.reports.report import Report
from pipeline.reports.tables import REPORT_TABLES
from tests.pipeline import report_samples

_VOID = {"meta", "link"}


class _Elements(HTMLParser):
    """Every element with its attributes, and the text of tables; elements that are not closed are found."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def hostile() -> Report:
    return report_samples.report(names=report_samples.HOSTILE, holes=report_samples.holes())


def test_the_page_stands_alone_and_its_policy_forbids_everything_else(hostile: Report) -> None:
    page = document.html(hostile)
    elements = _Elements(page)
    kinds = {name for name, _ in elements.found}
    assert not kinds & {"script", "img", "iframe", "object", "form", "base", "use", "image", "foreignobject"}
    for _, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on") or name in {"style", "src", "srcset"}]
    links = {attributes["href"] for attributes in elements.all("a")}
    assert all(link and re.fullmatch(r"#[a-z]+|[a-z_]+\.(csv|parquet)", link) for link in links)
    (icon,) = elements.all("link")
    assert str(icon["href"]).startswith("data:image/svg+xml,")
    style = page.split("<style>")[1].split("</style>")[0]
    assert not re.search(r"url\(|@import|expression", style)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(one["content"] for one in elements.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:;")


def test_every_chart_has_a_name_and_a_table_and_every_table_a_caption(hostile: Report) -> None:
    elements = _Elements(document.html(hostile))
    plots = [one for one in elements.all("svg") if (one.get("class") or "").startswith("plot")]
    assert len(plots) == 11
    assert all(one["role"] == "img" and one["aria-label"] for one in plots)
    assert len(elements.all("details")) == len(plots)
    assert len(elements.all("caption")) == len(elements.all("table"))
    assert all(one.get("scope") for one in elements.all("th"))


def test_names_are_shown_as_they_are_and_no_character_hides(hostile: Report) -> None:
    elements = _Elements(document.html(hostile))
    text = "".join(elements.text)
    for name in (report_samples.HOSTILE[0], report_samples.HOSTILE[1], report_samples.HOSTILE[4]):
        assert name in text
    assert "a\\u202egnp.exe\\u2066\\u0000\\u001b[31m" in text
    assert not set(text) & {"\u202e", "\u2066", "\x00", "\x1b"}


def test_holes_come_before_all_figures(hostile: Report) -> None:
    page = document.html(hostile)
    assert page.index("The lake has gaps in this period") < page.index('class="tiles"')
    assert "1,204 entries are missing, and more that nobody could count" in page
    assert "the stream was replaced by another" in page
    whole = document.html(report_samples.report())
    assert "has gaps" not in whole
    assert "It keeps status from 24 Nov 2026. What is older may be missing below." in page
    assert "does not keep" not in whole


def test_the_table_behind_a_chart_has_the_sums_of_its_days() -> None:
    report = report_samples.report()
    page = document.html(report)
    rows = report.tables["jobs_daily"].to_pylist()
    for day in report.period:
        ended = [sum(row[name] for row in rows if row["day"] == day) for name in ("submitted", "ended", "completed")]
        cells = "".join(f'<td class="number">{number:,}</td>' for number in ended)
        assert f"{day:%a} {day.day} {day:%b} {day.year}</th>{cells}" in page


def test_many_days_become_weeks_and_many_hosts_the_first_of_them() -> None:
    long = document.html(report_samples.report(400))
    assert "A day on average, by week." in long
    assert max(len(re.findall('class="band"', plot)) for plot in long.split('class="plot')) == 58
    assert len(long) < 600_000
    many = document.html(report_samples.report(hosts=5000))
    assert "The first 15 of 5,000; all of them are in hosts.csv." in many
    assert len(many) < 200_000


def test_a_period_in_which_nothing_happened_says_so_and_has_its_files(tmp_path: Path) -> None:
    report = report_samples.nothing()
    written = files.write(report, tmp_path)
    page = written.page.read_text()
    assert "Nothing happened in this period, as far as the lake knows." in page
    assert "<svg" not in page
    assert len(written.tables) == 2 * len(REPORT_TABLES)
    assert pq.read_table(tmp_path / "hosts.parquet").schema.equals(REPORT_TABLES["hosts"])


@pytest.mark.parametrize("kept", sorted(REPORT_TABLES))
def test_a_report_in_which_only_one_thing_happened_can_be_shown(kept: str) -> None:
    report = report_samples.report(3)
    tables = {name: table if name == kept else table.slice(0, 0) for name, table in report.tables.items()}
    page = document.html(Report(report.period, report.created, tables))
    assert "Nothing in this period." in page
    _Elements(page)


def test_numbers_that_are_not_known_are_no_zeros() -> None:
    report = report_samples.report(2)
    jobs = report.tables["jobs_daily"]
    none = pa.nulls(jobs.num_rows, pa.float64())
    zeros = pa.array([0] * jobs.num_rows)
    for name in ("completed", "partial", "failed", "ended", "submitted"):
        jobs = jobs.set_column(jobs.schema.get_field_index(name), name, zeros)
    jobs = jobs.set_column(jobs.schema.get_field_index("success_rate"), "success_rate", none)
    page = document.html(Report(report.period, report.created, {**report.tables, "jobs_daily": jobs}))
    assert '<dt>Success rate</dt><dd class="value">\u2013</dd>' in page


def test_parquet_has_the_tables_as_they_are_and_csv_what_no_spreadsheet_runs(hostile: Report, tmp_path: Path) -> None:
    files.write(hostile, tmp_path)
    for name, table in hostile.tables.items():
        assert pq.read_table(tmp_path / f"{name}.parquet").equals(table)
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(line.replace("\0", "") for line in file))
        assert len(rows) == table.num_rows
        texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
        for row, expected in zip(rows, table.to_pylist(), strict=True):
            for column in texts:
                assert not row[column].startswith(("=", "+", "-", "@", "\t", "\r"))
                assert row[column].removeprefix("'") == expected[column].replace("\0", "")


def test_a_report_replaces_the_one_before_it_and_leaves_nothing_else(tmp_path: Path) -> None:
    first = files.write(report_samples.nothing(), tmp_path)
    again = files.write(report_samples.report(1), tmp_path)
    assert first == again
    assert "Nothing happened" not in again.page.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (again.page, *again.tables)}


def test_a_file_that_cannot_be_written_leaves_the_former_one_whole(tmp_path: Path) -> None:
    files.write(report_samples.report(1), tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    broken = report_samples.report(1)
    tables = {**broken.tables, "jobs_daily": broken.tables["jobs_daily"].drop_columns(["ended"])}
    with pytest.raises(pa.ArrowInvalid):
        files.write(Report(broken.period, broken.created, tables), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    assert not list(tmp_path.glob(".*"))
