"""Secrets are scoped: what a configuration may declare, where it may name one, and how it is read."""

from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import ProxyPool
from kernel.config.loading import ConfigError, load
from kernel.config.secret_scopes import FETCH_HEADER, PROXY, TASK_ENDPOINT, WEBHOOK, HostPattern, SecretScopes, Use
from kernel.config.secret_values import read_secrets, with_proxy_secrets

ALL = '["fetch_header", "proxy", "task_endpoint", "webhook"]'
ANY = f'[secrets.ANY]\nsource = "env:ANY"\nuses = {ALL}\nhosts = ["h"]\n'
FETCH = '[secrets.FETCH]\nsource = "env:FETCH"\nuses = ["fetch_header"]\nhosts = ["h"]\n'


def broken(tmp_path: Path, text: str) -> dict[str, str]:
    """What is wrong with a configuration, by key."""
    path = tmp_path / "fetchbox.toml"
    path.write_text(text)
    try:
        load(path, {})
    except ConfigError as error:
        return {error.key: error.rule, **dict(error.more)}
    return {}


PLACES = {
    "job_types.web.default_headers.X-A": '[job_types.web.default_headers]\n"X-A" = "a ${secret:NAME} b"\n',
    "proxies.eu.urls[0]": '[proxies.eu]\nurls = ["http://u:${secret:NAME}@h:1"]\n',
    "tasks.chat.api_key": '[tasks.chat]\nendpoint = "http://h/v1"\napi_key = "${secret:NAME}"\n',
    "tasks.tool.headers.x-a": '[tasks.tool]\nendpoint = "http://h/v1"\nheaders = { x-a = "${secret:NAME}" }\n',
    "flow_engine.webhook_secrets.pay": '[flow_engine]\nwebhook_secrets = { pay = "${secret:NAME}" }\n',
    "flows.f.steps.s.with": '[flows.f.steps.s]\njob_type = "default"\nwith = { a = "$${secret:NAME}" }\n',
}
FETCHES = {"job_types.web.default_headers.X-A", "flows.f.steps.s.with"}


@pytest.mark.parametrize("key", PLACES)
def test_a_reference_is_refused_where_it_is_written_unless_its_secret_is_declared_for_that_use(
    tmp_path: Path, key: str
) -> None:
    assert key in broken(tmp_path, PLACES[key])
    assert broken(tmp_path, PLACES[key].replace("NAME", "ANY") + ANY) == {}
    told = broken(tmp_path, PLACES[key].replace("NAME", "FETCH") + FETCH)
    assert set(told) == (set() if key in FETCHES else {key})
    torn = broken(tmp_path, PLACES[key].replace("${secret:NAME}", "${secret:ANY") + ANY)
    assert key in torn


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("security.operator_tokens[0]", '[security]\noperator_tokens = ["${secret:ANY}"]\n'),
        ("security.tenant_tokens.${secret:ANY}", '[security]\ntenant_tokens = { "${secret:ANY}" = "t" }\n'),
        ("worker.ingest_token", '[worker]\ningest_token = "${secret:ANY}"\n'),
        ("redis.password", '[redis]\npassword = "${secret:ANY}"\n'),
        ("object_store.secret_access_key", '[object_store]\nsecret_access_key = "${secret:ANY}"\n'),
        ("object_store.endpoint", '[object_store]\nendpoint = "http://${secret:ANY}@h"\n'),
        ("tasks.chat.endpoint", '[tasks.chat]\nendpoint = "http://u:${secret:ANY}@h/v1"\n'),
        ("tasks.chat.options", '[tasks.chat]\nendpoint = "http://h"\noptions = { key = "${secret:ANY}" }\n'),
        ("job_types.web.options", '[job_types.web]\noptions = { key = ["${secret:ANY}"] }\n'),
        ("flows.f.steps.s.with", '[flows.f.steps.s]\nhandler = "a:B"\nwith = { a = "$${secret:ANY}" }\n'),
        ("proxies.eu.urls[0]", '[proxies.eu]\nurls = ["http://u:p@${secret:ANY}:1"]\n'),
        ("proxies.eu.urls[0]", '[proxies.eu]\nurls = ["http://${secret:ANY}:1"]\n'),
    ],
)
def test_a_reference_where_nothing_resolves_it_is_refused(tmp_path: Path, key: str, text: str) -> None:
    assert key in broken(tmp_path, text + ANY)


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("source", 'source = "OPENAI"\nuses = ["webhook"]'),
        ("source", 'source = "env:"\nuses = ["webhook"]'),
        ("source", 'source = "file:"\nuses = ["webhook"]'),
        ("source", 'uses = ["webhook"]'),
        ("uses", 'source = "env:A"'),
        ("uses[0]", 'source = "env:A"\nuses = ["manifest"]'),
        ("uses", 'source = "env:A"\nuses = ["webhook", "webhook"]'),
        ("hosts", 'source = "env:A"\nuses = ["fetch_header"]'),
        ("hosts[0]", 'source = "env:A"\nuses = ["fetch_header"]\nhosts = ["*"]'),
        ("hosts[0]", 'source = "env:A"\nuses = ["fetch_header"]\nhosts = ["*.*.h"]'),
        ("hosts[0]", 'source = "env:A"\nuses = ["fetch_header"]\nhosts = ["http://h"]'),
        ("hosts[0]", 'source = "env:A"\nuses = ["fetch_header"]\nhosts = ["h/path"]'),
        ("hosts[0]", 'source = "env:A"\nuses = ["fetch_header"]\nhosts = ["h:99999"]'),
        ("hosts", 'source = "env:A"\nuses = ["fetch_header"]\nhosts = [""]'),
        ("job_types[0]", 'source = "env:A"\nuses = ["proxy"]\njob_types = ["nowhere"]'),
        ("tenants[0]", 'source = "env:A"\nuses = ["proxy"]\ntenants = ["a b"]'),
        ("target", 'source = "env:A"\nuses = ["proxy"]\ntarget = "h"'),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(tmp_path: Path, key: str, lines: str) -> None:
    assert f"secrets.A.{key}" in broken(tmp_path, f"[secrets.A]\n{lines}\n")


def scopes(tmp_path: Path, lines: str) -> SecretScopes:
    path = tmp_path / "fetchbox.toml"
    path.write_text(f'[job_types.web]\n[secrets.A]\nsource = "env:A"\nuses = {ALL}\n{lines}')
    return SecretScopes(load(path, {}))


def test_each_part_of_a_declaration_limits_each_use(tmp_path: Path) -> None:
    found = scopes(tmp_path, 'tenants = ["alpha"]\njob_types = ["web"]\nhosts = ["api.example.com:443"]')
    good = {"tenant": "alpha", "job_type": "web", "host": "api.example.com", "port": 443}
    other = {"tenant": ["beta", "", "Alpha"], "job_type": ["default", ""], "host": ["example.com", ""], "port": [80]}
    for purpose in (FETCH_HEADER, PROXY, TASK_ENDPOINT):
        assert found.refusal("x ${secret:A}", Use(purpose, **good)) == ""  # type: ignore[arg-type]
        for name, values in other.items():
            for value in values:
                assert found.refusal("${secret:A}", Use(purpose, **{**good, name: value})), (purpose, name, value)  # type: ignore[arg-type]
    assert found.refusal("${secret:A}", Use(WEBHOOK, tenant="beta")) == ""
    assert found.refusal("${secret:A} ${secret:B}", Use(WEBHOOK))
    assert found.refusal("${secret:a}", Use(WEBHOOK))
    assert found.refusal("nothing", Use(FETCH_HEADER, "beta")) == ""


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        (
            "api.example.com",
            ["api.example.com", "api.example.com."],
            ["example.com", "x.api.example.com", "xapi.example.com"],
        ),
        ("*.example.com", ["a.example.com", "a.b.example.com"], ["example.com", "badexample.com", "example.com.evil"]),
        ("API.Example.com", ["api.example.com"], []),
        ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2", "127.0.0.1.evil"]),
        ("::1", ["::1"], ["::2"]),
        ("[0:0::1]:80", ["::1"], []),
        ("bücher.example", ["xn--bcher-kva.example"], []),
    ],
)
def test_hosts_are_compared_as_they_are_dialled(pattern: str, fits: list[str], others: list[str]) -> None:
    parsed = HostPattern.parse(pattern)
    assert all(parsed.fits(host, 80) for host in fits)
    assert not any(parsed.fits(host, 80) for host in others)
    assert HostPattern.parse("h:8080").fits("h", 8080)
    assert not HostPattern.parse("h:8080").fits("h", 80)


def test_values_are_read_from_their_sources_for_the_uses_of_a_role(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from a file\n")
    path = tmp_path / "fetchbox.toml"
    path.write_text(
        f'[secrets.F]\nsource = "file:{file}"\nuses = ["proxy"]\n[secrets.E]\nsource = "env:E"\nuses = ["webhook"]\n'
    )
    config = load(path, {})
    assert read_secrets(config, {"E": "e"}, (PROXY, WEBHOOK)) == {"F": "from a file", "E": "e"}
    assert read_secrets(config, {}, (PROXY,)) == {"F": "from a file"}
    for environ in ({}, {"E": ""}, {"E": " "}, {"E": "a\r\nb"}):
        with pytest.raises(ConfigError) as caught:
            read_secrets(config, environ, (WEBHOOK,))
        assert caught.value.key == "secrets.E.source"
    for content in (b"", b"\n", b"a\nb", b"\xff", b"x" * 70_000):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=r"secrets\.F\.source"):
            read_secrets(config, {}, (PROXY,))
    file.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        read_secrets(config, {}, (PROXY,))


def test_a_secret_in_a_proxy_url_changes_neither_host_nor_user() -> None:
    pools = {"p": ProxyPool(urls=["http://u:${secret:A}@h:1", "http://plain:1"])}
    filled = with_proxy_secrets(pools, {"A": "p@evil:80/#?%"})
    assert list(filled["p"].urls) == ["http://u:p%40evil%3A80%2F%23%3F%25@h:1", "http://plain:1"]
