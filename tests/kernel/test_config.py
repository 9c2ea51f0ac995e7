"""Configuration: defaults, files, environment, and what is refused."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from flows.definitions.definition import with_defaults
from kernel import durations
from kernel.config import loading as configuration
from kernel.config.loading import ConfigError

ROOT = Path(__file__).parents[2]


def _load(tmp_path: Path, text: str, name: str = "fetchbox.toml", **environ: str) -> Config:
    path = tmp_path / name
    path.write_text(text)
    return configuration.load(path, environ)


GALLERY = """
[job_types.gallery]
handler = "kernel.handlers:DefaultHandler"
default_headers = { "User-Agent" = "FetchBox/1.0" }

[job_types.gallery.proxy]
primary = "proxies/eu-primary"
fallbacks = ["proxies/global", "proxies/emergency"]

[job_types.gallery.storage]
bucket = "fetchbox-gallery"
key_prefix = "gallery/"

[job_types.gallery.options]
max_parallel_downloads = 8
ratio = 0.5
names = ["a"]

[proxies]
"proxies/eu-primary" = { urls = ["http://10.0.0.1:3128"] }
"proxies/global" = { urls = ["http://10.0.0.2:3128"] }
"proxies/emergency" = { urls = ["http://10.0.0.3:3128"] }
"""


@pytest.mark.req("R001-3.01", "R001-3.02", "R001-3.04", "R001-3.05", "R001-3.06", "R001-3.08", "R001-3.09")
def test_the_job_type_of_the_seed_is_read_as_written(tmp_path: Path) -> None:
    gallery = _load(tmp_path, GALLERY).job_types["gallery"]
    assert gallery.handler == "kernel.handlers:DefaultHandler"
    assert dict(gallery.default_headers) == {"User-Agent": "FetchBox/1.0"}
    assert gallery.proxy.primary == "proxies/eu-primary"
    assert list(gallery.proxy.fallbacks) == ["proxies/global", "proxies/emergency"]
    assert (gallery.storage.bucket, gallery.storage.key_prefix) == ("fetchbox-gallery", "gallery/")


@pytest.mark.req("R001-3.10", "R001-3.11")
def test_options_keep_their_types(tmp_path: Path) -> None:
    assert _load(tmp_path, GALLERY).job_types["gallery"].options == (
        b'{"max_parallel_downloads": 8, "ratio": 0.5, "names": ["a"]}'
    )


@pytest.mark.req("R001-3.01")
def test_yaml_says_the_same_as_toml(tmp_path: Path) -> None:
    yaml = "worker: {count: 7, backoff: {base: 250ms}}\njob_types: {g: {storage: {bucket: my-bucket}}}\n"
    toml = '[worker]\ncount = 7\nbackoff = { base = "250ms" }\n[job_types.g.storage]\nbucket = "my-bucket"\n'
    assert _load(tmp_path, yaml, "a.yaml") == _load(tmp_path, toml, "a.toml")


def test_a_missing_or_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert configuration.load(tmp_path / "none.toml", {}) == configuration.defaults() == _load(tmp_path, "", "e.yaml")
    assert "default" in configuration.defaults().job_types


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[redis]\naddrr = "x:1"', "redis.addrr"),
        ("[nonsense]\na = 1", "nonsense"),
        ('[redis]\naddr = "no port"', "redis.addr"),
        ("[worker]\ncount = 0", "worker.count"),
        ("[worker]\ncount = true", "worker.count"),
        ('[worker]\ncount = "4"', "worker.count"),
        ('[worker]\ndeadline = "5"', "worker.deadline"),
        ('[worker]\ndeadline = "-5s"', "worker.deadline"),
        ("[worker]\ndeadline = 5", "worker.deadline"),
        ('[worker]\nheartbeat_ttl = "0s"', "worker.heartbeat_ttl"),
        ('[worker.backoff]\nbase = "20s"', "worker.backoff.base"),
        ("[worker]\nbackoff = 3", "worker.backoff"),
        ('[job_types."a b"]', "job_types.a b"),
        ('[job_types.g]\nchecksum = "maybe"', "job_types.g.checksum"),
        ('[job_types.g]\nbucket = "x"', "job_types.g.bucket"),
        ('[job_types.g.proxy]\nprimary = "gone"', "job_types.g.proxy"),
        ('[job_types.g.proxy]\nfallbacks = ["p"]\n[proxies.p]\nurls=["http://h:1"]', "job_types.g.proxy.primary"),
        ("[proxies.p]\nurls = []", "proxies.p.urls"),
        ('[fetcher]\nallow_networks = ["10.0.0.0/33"]', "fetcher.allow_networks"),
        ('[fetcher]\nallow_networks = "10.0.0.0/8"', "fetcher.allow_networks"),
        ('[security.tls]\ncert_file = "a.pem"', "security.tls"),
        ('[observability]\nlog_level = "loud"', "observability.log_level"),
        ("[streams.tasks]\npartitions = 0", "streams.tasks.partitions"),
        ("[[worker]]\ncount = 1", "worker"),
    ],
)
def test_a_wrong_value_or_unknown_key_is_fatal_and_named(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert caught.value.key == key
    assert caught.value.rule


@pytest.mark.req("R001-3.06")
def test_fallbacks_that_lead_back_are_refused(tmp_path: Path) -> None:
    text = '[job_types.g.proxy]\nprimary = "p"\nfallbacks = ["q", "p"]\n[proxies]\np.urls=["http://h:1"]\nq.urls=["http://h:2"]'
    with pytest.raises(ConfigError, match="'p' twice"):
        _load(tmp_path, text)


def test_broken_files_are_named(tmp_path: Path) -> None:
    for text, name in (("x = [", "a.toml"), ("a: [", "a.yaml"), ("- 1", "b.yaml")):
        with pytest.raises(ConfigError, match=name):
            _load(tmp_path, text, name)
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        configuration.load(tmp_path / "c.toml", {})


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    loaded = _load(
        tmp_path,
        '[redis]\naddr = "file:1"',
        REDIS_ADDR="env:2",
        WORKER_BACKOFF_BASE="1s",
        FETCHBOX_OBJECT_STORE_BUCKET="other",
        FETCHBOX_FETCHER_ALLOW_NETWORKS="127.0.0.0/8,10.0.0.0/8",
        FETCHBOX_FETCHER_ALLOW_EMPTY="true",
    )
    assert loaded.redis.addr == "env:2"
    assert loaded.worker.backoff.base.seconds == 1
    assert loaded.object_store.bucket == "other"
    assert list(loaded.fetcher.allow_networks) == ["127.0.0.0/8", "10.0.0.0/8"]
    assert loaded.fetcher.allow_empty


def test_what_an_orchestrator_injects_breaks_nothing() -> None:
    injected = {"FETCHBOX_PORT": "tcp://10.0.0.1:80", "FETCHBOX_SERVICE_HOST": "10.0.0.1", "WORKER_LISTEN": "x"}
    assert configuration.load(None, injected) == configuration.defaults()


@pytest.mark.parametrize(("name", "text"), [("WORKER_COUNT", "many"), ("FETCHBOX_FETCHER_ALLOW_EMPTY", "yes")])
def test_a_wrong_variable_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configuration.load(None, {name: text})
    assert caught.value.key == name


@pytest.mark.req("R001-6.01", "R001-4.01", "R001-4.04", "R001-1.19", "R000-3.06")
def test_the_comments_of_the_schema_state_the_defaults() -> None:
    source = (ROOT / "proto/fetchbox/config/v1/config.proto").read_text()
    section = re.compile(r"^message (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
    field = re.compile(r"((?:^  // .*\n)+)  (?:optional )?[\w.]+ (\w+) = \d+", re.MULTILINE)
    stated = 0
    defaults = configuration.defaults()
    for message, body in section.findall(source):
        for comment, name in field.findall(body):
            match = re.search(r"Default `?([\w.:/+-]+?)`?(?: \([^)]*\))?\.(?:\s|$)", " ".join(comment.split()))
            if match is None or message in ("Config", "Streams", "JobType", "Storage", "Tls"):
                continue
            stated += 1
            held = _section(defaults, message)
            is_other = match[1] in OTHER_KEYS and getattr(held, name) == OTHER_KEYS[match[1]](defaults)
            assert is_other or match[1] in _texts(held, name), f"{message}.{name}: {match[1]}"
    assert stated > 50


OTHER_KEYS: dict[str, Callable[[Config], object]] = {
    "retention": lambda config: config.flow_engine.retention,
    "worker.max_retries": lambda config: config.worker.max_retries,
    "worker.backoff": lambda config: config.worker.backoff,
}
"""Defaults that are what another key says."""


def _section(config: Config, message: str) -> object:
    config.flows["f"].steps["s"].handler = "package.module:Class"
    config.flows["f"].steps["s"].gate.reason = "manual"
    step = with_defaults(config, "f").steps["s"]
    nested = {
        "Backoff": config.worker.backoff,
        "ListRetention": config.worker.completed_keep,
        "Tracing": config.observability.tracing,
        "FlowStep": step,
        "FlowGate": step.gate,
    }
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", message).lower()
    return nested.get(message) or getattr(config, snake)


def _texts(section: object, name: str) -> set[str]:
    value = getattr(section, name)
    if hasattr(value, "nanos"):
        millis = durations.millis(value)
        forms = {f"{millis}ms", f"{millis / 1000:g}s", f"{millis / 60_000:g}m", f"{millis / 3_600_000:g}h"}
        return forms if millis else {"0s"}
    return {str(value), str(value).lower(), *({"none", "empty"} if not value else set())}
