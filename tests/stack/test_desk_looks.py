"""How the operators' page looks: on a phone, in light and dark, to a screen reader, under its policy."""

import json
import re
from pathlib import Path

import aiohttp
import pytest

from cli.sample_site import SampleSite
from tests.stack import desk_views
from tests.stack.desk import Desk
from tests.stack.desk_work import post, submit
from tests.stack.test_flow_pages import test_a_command_that_a_page_shows_is_one as is_command

pytestmark = pytest.mark.asyncio(loop_scope="module")
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"


async def test_every_page_fits_a_phone_can_be_read_in_light_and_dark_and_shows_commands_that_exist(
    desk: Desk, api: aiohttp.ClientSession, web: SampleSite, tmp_path: Path
) -> None:
    job = await submit(api, "a-long-name-" * 10, f"{web.url('/status/404')}?{'x' * 300}")
    run = (await post(api, "/v1/flows", {"flow": "nap", "input": {}}))["flow"]["flowId"]
    lists = ["", "jobs", "dead-letters", "file-dead-letters", "queues", "workers", "breakers", "flows", "settings", "x"]
    await desk.open("#/nowhere")
    commands: set[str] = set()
    grounds = set()
    for place in [*lists, f"jobs/{job}", f"flows/{run}", "jobs/unknown", "flows/unknown"]:
        await desk.page.look(360, prefers_color_scheme="light")
        await desk.go(f"#/{place}")
        await desk.until("!document.querySelector('main').innerText.includes('Loading…')")
        assert await desk.page.value(desk_views.OUTSIDE) == [], place
        assert await desk.page.value("document.documentElement.scrollWidth <= innerWidth"), place
        assert await desk.page.value(desk_views.UNNAMED) == [], place
        for scheme in ("light", "dark"):
            await desk.page.look(360, prefers_color_scheme=scheme)
            ratios = await desk.page.value(desk_views.CONTRAST)
            assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}, (place, scheme)
            grounds.add(await desk.page.value("getComputedStyle(document.body).backgroundColor"))
        commands.update(
            await desk.page.value("[...document.querySelectorAll('.command code')].map(one => one.innerText)")
        )
    await desk.page.value(
        "document.querySelector('main').style.cssText = 'color: #999; background: #fff; width: 400px'"
    )
    assert await desk.page.value(desk_views.OUTSIDE), "what sticks out would be found"
    assert min((await desk.page.value(desk_views.CONTRAST)).values()) < 4.5, "and what is pale"
    await desk.page.look(1280)
    assert len(grounds) == 2
    assert len(commands) >= 12
    for command in commands:
        words = command.split()
        assert words.pop(0) == "fetchbox"
        is_command(words)


@pytest.mark.skipif(not AXE.exists(), reason="`make web` installs axe-core")
async def test_axe_finds_nothing(desk: Desk, failed: str) -> None:
    await desk.open("#/nowhere")
    await desk.page.value(AXE.read_text())
    rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']}"
    wrong = f"axe.run({rules}).then(found => found.violations.map(one => [one.id, one.nodes.map(node => node.html)]))"
    for place in ("", "jobs", "dead-letters", "queues", "workers", "breakers", "flows", "settings", f"jobs/{failed}"):
        await desk.go(f"#/{place}")
        await desk.until("!document.querySelector('main').innerText.includes('Loading…')")
        found = await desk.page.call("Runtime.evaluate", expression=wrong, awaitPromise=True, returnByValue=True)
        assert found["result"]["value"] == [], place


async def test_a_chosen_theme_wins_over_the_system_s(desk: Desk) -> None:
    await desk.open()
    await desk.page.look(1280, prefers_color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await desk.page.value(ground)
    choose = "document.querySelector('.theme select').value = '{}'; {}"
    change = "document.querySelector('.theme select').dispatchEvent(new Event('change', {bubbles: true}))"
    await desk.page.value(choose.format("dark", change))
    await desk.until("document.documentElement.dataset.theme === 'dark'")
    assert await desk.page.value(ground) != light
    await desk.page.value(choose.format("system", change))
    assert await desk.page.value(ground) == light


async def test_times_are_the_reader_s_with_utc_on_hover(desk: Desk, failed: str) -> None:
    await desk.page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    await desk.open(f"#/jobs/{failed}")
    shown = await desk.until("[document.querySelector('dd time').innerText, document.querySelector('dd time').title]")
    await desk.page.call("Emulation.setTimezoneOverride", timezoneId="")
    local, utc = (re.search(r"(\d+):(\d\d):\d\d", one) for one in shown)
    assert local is not None
    assert utc is not None
    assert (int(local[2]) - int(utc[2])) % 60 == 30
    assert shown[1].endswith("UTC")


async def test_what_its_policy_forbids_would_be_seen(desk: Desk) -> None:
    await desk.open()
    run = "document.createElement('script').textContent = 'document.title = 1'"
    done = await desk.page.call("Runtime.evaluate", expression=run)
    assert "TrustedScript" in json.dumps(done["exceptionDetails"])
    await desk.page.value("document.body.setAttribute('style', 'color: red')")
    assert len(desk.page.complaints) >= 1
    desk.page.complaints.clear()
