"""Configuration fails closed: what lets in everybody, or can never work, ends the start and is named."""

from pathlib import Path

import pytest

from kernel.config.loading import ConfigError, load


def broken(tmp_path: Path, text: str, name: str = "fetchbox.toml", **environ: str) -> dict[str, str]:
    """What is wrong with a configuration, by key."""
    path = tmp_path / name
    path.write_text(text)
    try:
        load(path, environ)
    except ConfigError as error:
        return {error.key: error.rule, **dict(error.more)}
    return {}


@pytest.mark.parametrize(
    "tokens", ['[""]', "[]", '[" "]', '["a", ""]', '["a b"]', '["a\\n"]', '["ü"]', '["a", "a"]', '["None"]']
)
def test_operator_tokens_that_are_none_are_refused(tmp_path: Path, tokens: str) -> None:
    assert any(
        key.startswith("security.operator_tokens")
        for key in broken(tmp_path, f"[security]\noperator_tokens = {tokens}\n")
    )


@pytest.mark.parametrize(
    "tokens", ["", ",", "[]", '[""]', "a,", "a,,b", " ", "a,a", "[a", "${secret:X}", "a, b", "null"]
)
def test_operator_tokens_of_the_environment_that_are_none_are_refused(tmp_path: Path, tokens: str) -> None:
    found = broken(tmp_path, "", FETCHBOX_SECURITY_OPERATOR_TOKENS=tokens)
    assert any("OPERATOR_TOKENS" in key or "operator_tokens" in key for key in found), found


@pytest.mark.parametrize("table", ["{}", '{ "" = "t" }', '{ "a b" = "t" }', '{ "a" = "" }', '{ "a" = "t/u" }'])
def test_tenant_tokens_that_are_none_are_refused(tmp_path: Path, table: str) -> None:
    assert "security.tenant_tokens" in broken(tmp_path, f"[security]\ntenant_tokens = {table}\n")


@pytest.mark.parametrize("table", ["", "{}", "{a: t, a: u}", "{a: }", "a=t", "{1: t}"])
def test_tenant_tokens_of_the_environment_that_are_none_are_refused(tmp_path: Path, table: str) -> None:
    found = broken(tmp_path, "", FETCHBOX_SECURITY_TENANT_TOKENS=table)
    assert any("TENANT_TOKENS" in key or "tenant_tokens" in key for key in found), found


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(
            (f"security.tls.{name}", f'[security.tls]\n{name} = ""\n')
            for name in ("client_ca_file", "cert_file", "key_file")
        ),
        *(
            (f"secrets.A.{name}", f'[secrets.A]\nsource = "env:A"\nuses = ["task_endpoint"]\n{name} = []\n')
            for name in ("tenants", "job_types", "hosts")
        ),
    ],
)
def test_what_lets_in_more_when_it_is_empty_is_not_empty(tmp_path: Path, key: str, text: str) -> None:
    found = broken(tmp_path, text, A="a")
    assert found[key].startswith("is there and empty")
    name = f"FETCHBOX_{key.replace('.', '_').upper()}"
    assert key.startswith("secrets.") or set(broken(tmp_path, "", **{name: ""})) == {name}


def test_one_token_is_one_caller(tmp_path: Path) -> None:
    text = '[security]\noperator_tokens = ["same-t0ken"]\ntenant_tokens = { "same-t0ken" = "alpha" }\n'
    found = broken(tmp_path, text)
    assert set(found) == {"security.operator_tokens[0]"}
    assert "same-t0ken" not in str(found), "a message names no token"
    assert broken(tmp_path, text.replace('["same-t0ken"]', '["other"]')) == {}


OPEN = ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "192.168.0.9:1", "[fe80::1]:1", "fetchbox.internal:1", "localhost.evil:1"]


@pytest.mark.parametrize("key", ["ingest.listen", "worker.listen", "operator.listen", "gateway.listen"])
def test_a_server_beyond_loopback_without_credentials_is_refused(tmp_path: Path, key: str) -> None:
    section = key.split(".", maxsplit=1)[0]
    for listen in OPEN:
        text = f'[{section}]\nlisten = "{listen}"\n'
        assert key in broken(tmp_path, text), listen
        for guard in (
            'operator_tokens = ["t"]',
            'tenant_tokens = { "t" = "a" }',
            "trusted_network = true",
            'tls = { cert_file = "c", key_file = "k", client_ca_file = "a" }',
        ):
            assert broken(tmp_path, f"{text}[security]\n{guard}\n") == {}
        only_encrypted = 'tls = { cert_file = "c", key_file = "k" }'
        assert key in broken(tmp_path, f"{text}[security]\n{only_encrypted}\n")
    for listen in ("127.0.0.1:0", "127.9.9.9:1", "[::1]:1", "localhost:1", "LOCALHOST:1"):
        assert broken(tmp_path, f'[{section}]\nlisten = "{listen}"\n') == {}


def test_metrics_beyond_loopback_need_an_operators_token(tmp_path: Path) -> None:
    text = '[observability]\nmetrics_listen = "0.0.0.0:9090"\n'
    key = "observability.metrics_listen"
    assert key in broken(tmp_path, text)
    assert key in broken(tmp_path, text + '[security]\ntenant_tokens = { "t" = "a" }\n')
    assert broken(tmp_path, text + '[security]\noperator_tokens = ["t"]\n') == {}
    assert broken(tmp_path, text + "[security]\ntrusted_network = true\n") == {}
    assert broken(tmp_path, '[observability]\nmetrics_listen = "127.0.0.1:9090"\n') == {}


UNFIT_ADDRESSES = [
    "nope", "", ":50051", "h", "h:", "h:99999", "h:-1", "h:x", "h:\uff11", "redis://h:6379", "http://h:80", "::1:80",
    "[::1]", "[::1:80", "[x]:80", "a b:80", "h/p:80", "h:80/p", "u@h:80", "*:80", "1.2.3:80", "h:80 ", "h:000080",
]  # fmt: skip


@pytest.mark.parametrize("address", UNFIT_ADDRESSES)
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    text = "".join(f'[{name}]\nlisten = "{address}"\n' for name in ("ingest", "operator"))
    text += f'[worker]\nlisten = "{address}"\ningest = "{address}"\n[redis]\naddr = "{address}"\n'
    text += f'[gateway]\nlisten = "{address}"\n'
    text += "".join(f'{name} = "{address}"\n' for name in ("ingest", "worker", "operator", "task", "flow"))
    found = broken(tmp_path, text)
    assert {key for key in found if "priorities" not in key} >= {
        "ingest.listen", "operator.listen", "worker.listen", "worker.ingest", "redis.addr", "gateway.listen",
        "gateway.ingest", "gateway.worker", "gateway.operator", "gateway.task", "gateway.flow",
    }, found  # fmt: skip
    environ = {"FETCHBOX_GATEWAY_LISTEN": address, "REDIS_ADDR": address}
    assert {"gateway.listen", "redis.addr"} <= set(broken(tmp_path, "", **environ))


def test_nothing_can_be_reached_at_port_0(tmp_path: Path) -> None:
    assert "redis.addr" in broken(tmp_path, '[redis]\naddr = "h:0"\n')
    assert "gateway.ingest" in broken(tmp_path, '[gateway]\ningest = "h:0"\n')
    assert broken(tmp_path, '[gateway]\ningest = "dns:///ingest.internal:50051"\n') == {}


UNFIT_URLS = ["h:9000", "127.0.0.1", "s3://h", "//h", "http:h", "http://", "http:///p", "http://h:99999", "http://h:x"]
UNFIT_URLS += ["http://h:0", "http://h:", "http://a b", "http://h\\n", "http://[::1", "http://0x7f.1/"]


@pytest.mark.parametrize("url", UNFIT_URLS)
def test_a_url_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    found = broken(
        tmp_path,
        f'[object_store]\nendpoint = "{url}"\n[observability.tracing]\nendpoint = "{url}"\n'
        f'[tasks.chat]\nendpoint = "{url}"\n[proxies.eu]\nurls = ["http://good:1", "{url}"]\n',
    )
    keys = {"object_store.endpoint", "observability.tracing.endpoint", "tasks.chat.endpoint", "proxies.eu.urls[1]"}
    assert set(found) == keys


def test_what_a_proxy_is_given_as_credentials_is_not_told(tmp_path: Path) -> None:
    found = broken(tmp_path, '[proxies.eu]\nurls = ["http://user:s3cret@h:99999"]\n')
    assert set(found) == {"proxies.eu.urls[0]"}
    assert "s3cret" not in str(found)


BUCKETS = ["Bad_Bucket", "ab", "a" * 64, "-a-b", "a..b", "a.-b", "192.168.0.1", "xn--abc", "abc-s3alias", "a/b", "ü-b"]


@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_bucket_that_s3_refuses_is_refused(tmp_path: Path, bucket: str) -> None:
    text = f'[object_store]\nbucket = "{bucket}"\n[lake]\nbucket = "{bucket}"\n'
    found = broken(tmp_path, f'{text}[job_types.web.storage]\nbucket = "{bucket}"\n')
    assert set(found) == {"object_store.bucket", "lake.bucket", "job_types.web.storage.bucket"}


@pytest.mark.parametrize(
    "prefix", ["../../x", "a/../b", "./a", "/a", "a//b", "a/./", "..", "a\\\\b", "a\\u0000b", "//"]
)
def test_a_prefix_that_climbs_is_refused(tmp_path: Path, prefix: str) -> None:
    text = f'[worker]\nfile_key_prefix = "{prefix}"\n[job_types.web.storage]\nkey_prefix = "{prefix}"\n'
    assert set(broken(tmp_path, text)) == {"worker.file_key_prefix", "job_types.web.storage.key_prefix"}
    good = '[worker]\nfile_key_prefix = "files-"\n[job_types.web.storage]\nkey_prefix = "gallery/2026"\n'
    assert broken(tmp_path, good) == {}


@pytest.mark.parametrize(
    "header",
    [
        '"Host" = "a"', '"host" = "a"', '"Content-Length" = "1"', '"Connection" = "close"', '"Transfer-Encoding" = "x"',
        '"A" = "b\\r\\nEvil: 1"', '"A" = "b\\n"', '"A" = "b\\u0000"', '"a b" = "c"', '"" = "c"', '"A:" = "c"',
        '"ü" = "c"', f'"A" = "{"x" * 1025}"', '"A" = "1"\n"a" = "2"',
    ],
)  # fmt: skip
def test_a_default_header_that_may_not_be_sent_is_refused(tmp_path: Path, header: str) -> None:
    found = broken(tmp_path, f"[job_types.web.default_headers]\n{header}\n")
    assert found
    assert all(key.startswith("job_types.web.default_headers.") for key in found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "worker:\n  count: 1\n  count: 2\n"),
        ("a.yaml", "worker: {count: 1}\nworker: {count: 2}\n"),
        ("a.yaml", 'security: {tenant_tokens: {t: a, "t": b}}\n'),
        ("a.json", '{"worker": {"count": 1, "count": 2}}'),
        ("a.yml", "job_types:\n  a: {}\n  a: {checksum: lenient}\n"),
        ("a.toml", "[worker]\ncount = 1\ncount = 2\n"),
        ("a.toml", "[worker]\ncount = 1\n[worker]\ncount = 2\n"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(tmp_path: Path, name: str, text: str) -> None:
    assert set(broken(tmp_path, text, name)) == {str(tmp_path / name)}


def test_a_table_may_be_merged_from_another(tmp_path: Path) -> None:
    text = "job_types:\n  a: &a {max_retries: 1, checksum: lenient}\n  b: {<<: *a, max_retries: 2}\n"
    assert broken(tmp_path, text, "a.yaml") == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "a: [\n"), ("a.yaml", "a: *b\n"), ("a.yaml", "? [a]\n: 1\n"), ("a.yaml", "a: 2026-13-45\n"),
        ("a.yaml", "a: !!python/object:os.system {}\n"), ("a.yaml", "[" * 5000), ("a.yaml", "a: b: c\n"),
        ("a.yaml", "\x00"), ("a.yaml", "- a\n"), ("a.yaml", "text"), ("a.toml", "a = [\n"),
        ("a.toml", "a = " + "[" * 5000),
        ("a.toml", "a = 1979-13-01\n"), ("a.toml", "\x00"), ("a.json", "{"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, text: str) -> None:
    found = broken(tmp_path, text, name)
    assert set(found) == {str(tmp_path / name)}
    assert "\n" not in "".join(found.values())


@pytest.mark.parametrize(
    "value", ["9" * 400 + "h", "9" * 5000 + "s", "999999999h", "-1s", "1", "1 s", "", "1d", "nan", "inf"]
)
def test_a_duration_that_nobody_can_wait_for_is_refused(tmp_path: Path, value: str) -> None:
    assert set(broken(tmp_path, f'[worker]\nblock = "{value}"\n')) == {"worker.block"}
    assert len(str(broken(tmp_path, f'[worker]\nblock = "{value}"\n'))) < 500


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", '"0.1"', "true", "[]"])
def test_a_number_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    assert "worker.low_priority_share" in broken(tmp_path, f"[worker]\nlow_priority_share = {value}\n")
    assert "circuit_breaker.failure_threshold" in broken(tmp_path, f"[circuit_breaker]\nfailure_threshold = {value}\n")


@pytest.mark.parametrize("value", ["9" * 30, "1.5", "1e3", "true", '"4"', "-1", "0x", "[]", "{}"])
def test_a_whole_number_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    assert broken(tmp_path, f"[worker]\ncount = {value}\n")
    for text in ("x", "1.5", "", " ", "9" * 5000, "1e3", "[1]", "{a: 1}", "0x10"):
        assert set(broken(tmp_path, "", WORKER_COUNT=text)) <= {"WORKER_COUNT", "worker.count"}
        assert broken(tmp_path, "", WORKER_COUNT=text)


def test_an_unknown_key_is_named_with_what_was_meant(tmp_path: Path) -> None:
    assert "did you mean listen?" in broken(tmp_path, '[ingest]\nlisen = "h:1"\n')["ingest.lisen"]
