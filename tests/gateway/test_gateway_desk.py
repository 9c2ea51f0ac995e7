"""The files of the operators' page, as the gateway serves them: for everyone who may address it, token or not."""

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from fetchbox.config.v1.config_pb2 import Config
from gateway import desk
from gateway.bootstrap import build
from gateway.pages import Page
from gateway.server import HttpServer
from kernel.config.loading import defaults

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
BUILT = ROOT / "gateway" / "ui"
_SOURCES = ("build.mjs", "index.html", "package.json", "package-lock.json", "tsconfig.json", "src")
_BUDGET = 200 << 10


def test_what_is_committed_was_built_from_these_sources() -> None:
    named = {name: WEB / name for name in _SOURCES if name != "src"}
    named |= {str(path.relative_to(WEB)): path for path in (WEB / "src").rglob("*") if path.is_file()}
    named.pop("src/api/schema.d.ts", None)
    digest = hashlib.sha256()
    for name in sorted(named):
        digest.update(name.encode() + b"\0" + named[name].read_bytes() + b"\0")
    assert digest.hexdigest() == (BUILT / "sources.sha256").read_text().strip(), "web/ has changed: run `make web`"


def test_the_page_calls_nothing_that_the_api_does_not_document() -> None:
    document = json.loads((ROOT / "gen/fetchbox/openapi.json").read_text())
    known = [re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)) for path in document["paths"]]
    found = set()
    for source in (WEB / "src").rglob("*.ts*"):
        for text in re.findall(r"[`\"](/(?:operators|v1|workers)[/:][^`\"?]*)[`\"]", source.read_text()):
            found.add(re.sub(r"\$\{[^}]*\}", "x", text))
    assert len(found) >= 15
    unknown = [path for path in found if not any(one.fullmatch(path) for one in known)]
    assert unknown == []


def test_the_page_runs_nothing_inline_and_asks_nobody_else() -> None:
    page = desk.load("full")["/ui/"].body.decode()
    assert re.findall(r"<script(?![^>]* src=\"assets/)|<style| style=| on\w+=", page) == []
    assert re.findall(r"(?:src|href)=\"(?!assets/)", page) == []
    for file in (BUILT / "assets").iterdir():
        assert f"assets/{file.name}" in page
        assert re.findall(r"https?://(?!www\.w3\.org/)[^\"'`\s]+", file.read_text()) == []


def test_the_first_page_is_small() -> None:
    assert sum(len(page.gzipped or page.body) for page in desk.load("full").values()) < _BUDGET


@pytest.mark.parametrize(("mode", "said"), [("full", 'content="full"'), ("read", 'content="read"')])
def test_the_page_knows_its_mode(mode: str, said: str) -> None:
    assert f'<meta name="fetchbox-ui" {said}>' in desk.load(mode)["/ui/"].body.decode()


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("gzip", "gzip"), ("br, GZIP ; q=0.5", "gzip"), ("gzip;q=0", None), ("", None), ("identity, br", None)],
)
def test_a_body_is_gzipped_for_who_takes_it(accepted: str, coding: str | None) -> None:
    page = Page({}, b"text " * 1000)
    status, headers, body = page.answer({"Accept-Encoding": accepted})
    assert (status, headers.get("Content-Encoding")) == (200, coding)
    assert (gzip.decompress(body) if coding else body) == page.body
    assert "Content-Encoding" not in Page({}, b"short").answer({"Accept-Encoding": "gzip"})[1]


async def _asked(config: Config, *requests: tuple[str, dict[str, str]]) -> list[tuple[int, Mapping[str, str], bytes]]:
    config.gateway.listen = "127.0.0.1:0"
    service = await build(config)
    (http,) = service.duties
    assert isinstance(http, HttpServer)
    await service.start()
    found = []
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{http.port}") as session:
            for path, headers in requests:
                async with session.get(path, headers=headers, allow_redirects=False) as answer:
                    found.append((answer.status, answer.headers.copy(), await answer.read()))
    finally:
        await service.stop()
    return found


async def test_files_need_no_token_are_guarded_and_are_kept_by_their_content() -> None:
    config = defaults()
    config.security.operator_tokens.append("a-token")
    config.gateway.allowed_origins.append("https://app.example.com")
    (script,) = [path for path in desk.load("full") if path.endswith(".js")]
    moved, page, asset, data = await _asked(config, ("/ui", {}), ("/ui/", {}), (script, {}), ("/operators/jobs", {}))
    assert (moved[0], moved[1]["Location"]) == (308, "ui/")
    assert (page[0], page[1]["Cache-Control"], page[1]["Content-Type"]) == (200, "no-cache", "text/html; charset=utf-8")
    assert page[1]["Vary"] == "Origin, Accept-Encoding"
    assert (asset[0], asset[1]["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
    assert asset[1]["Content-Encoding"] == "gzip"
    assert data[0] == 401
    for _, headers, _ in (page, asset):
        policy = headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    again, stranger = await _asked(
        config, ("/ui/", {"If-None-Match": page[1]["ETag"]}), ("/ui/", {"Host": "evil.example"})
    )
    assert (again[0], again[2]) == (304, b"")
    assert stranger[0] == 421


async def test_it_may_be_off() -> None:
    config = defaults()
    config.gateway.ui = "off"
    answers = await _asked(config, ("/ui", {}), ("/ui/", {}), ("/docs", {}))
    assert [status for status, _, _ in answers] == [404, 404, 200]
