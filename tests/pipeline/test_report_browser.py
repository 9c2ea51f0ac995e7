"""The page of a report in a real browser: it runs nothing, asks for nothing, and can be read everywhere."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipeline.reports.files import write
from tests.browser import Page, chromium
from tests.pipeline import report_samples

ROOT = Path(__file__).parents[2]
_SIZES = "[...document.querySelectorAll('svg.plot, svg.bar')].map(one => one.getBoundingClientRect())"
_COLOURS = """['completed', 'partial', 'failed', 'canceled']
    .map(name => getComputedStyle(document.querySelector('.plot rect.' + name)).fill)"""
_BACKGROUND = "getComputedStyle(document.body).backgroundColor"
_OUTSIDE = """[...document.querySelectorAll('main *, header *, footer *')].filter(one => {
    const box = one.getBoundingClientRect(), clipped = one.closest('.scroll, .unseen, .told, .bar');
    return !clipped && box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map(one => one.outerHTML.slice(0, 90))"""


@pytest.fixture
async def page(program: str, tmp_path: Path) -> AsyncIterator[Page]:
    async with chromium(program, tmp_path) as shown:
        yield shown


@pytest.mark.timeout(700)
async def test_the_page_asks_for_nothing_and_follows_the_reader_s_colours(page: Page, tmp_path: Path) -> None:
    report = report_samples.report(names=report_samples.HOSTILE, holes=report_samples.holes())
    file = write(report, tmp_path / "report").page
    await page.open(file)
    await page.look(1280)
    assert page.requests == [file.as_uri()]
    assert await page.value("document.title") == "FetchBox report, 21 Nov to 27 Nov 2026"
    assert await page.value("document.scripts.length + document.images.length") == 0
    assert await page.value(f"{_SIZES}.length") > 40
    assert await page.value(f"{_SIZES}.every(box => box.width > 20 && box.height > 5)")
    light, colours = await page.value(_BACKGROUND), await page.value(_COLOURS)
    await page.look(1280, prefers_color_scheme="dark")
    assert await page.value(_BACKGROUND) != light
    dark = await page.value(_COLOURS)
    assert len({*colours, *dark}) == 8
    await page.look(720, media="print", prefers_color_scheme="dark")
    assert await page.value(_COLOURS) == colours, "paper is light, whatever the screen is"
    assert await page.value("getComputedStyle(document.querySelector('rect.failed')).printColorAdjust") == "exact"
    assert page.complaints == []


@pytest.mark.timeout(700)
async def test_nothing_sticks_out_however_wide_the_window_and_whatever_the_names(page: Page, tmp_path: Path) -> None:
    samples = {
        "hostile": report_samples.report(names=report_samples.HOSTILE, holes=report_samples.holes()),
        "long": report_samples.report(400),
        "one": report_samples.report(1),
        "hosts": report_samples.report(hosts=5000),
        "nothing": report_samples.nothing(),
    }
    for name, report in samples.items():
        await page.open(write(report, tmp_path / name).page)
        for width in (360, 760, 1600):
            await page.look(width)
            assert await page.value(_OUTSIDE) == [], (name, width)
    assert page.complaints == []
    assert len(page.requests) == len(samples)


@pytest.mark.timeout(700)
async def test_a_policy_that_is_broken_would_be_seen(page: Page, tmp_path: Path) -> None:
    file = write(report_samples.report(1), tmp_path / "report").page
    spoilt = file.read_text().replace(
        "</main>", "<script>document.title = 'run'</script><i style='color: red'></i></main>"
    )
    file.write_text(spoilt)
    await page.open(file)
    assert await page.value("document.title") == "FetchBox report, Fri 27 Nov 2026"
    assert len(page.complaints) == 2
