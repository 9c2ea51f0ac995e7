"""`fetchbox export`, and the role where its packages are not installed."""

from __future__ import annotations

import json
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from cli.problems import USAGE, CommandError
from cli.serve import Role, chosen
from fetchbox.config.v1.config_pb2 import Config
from kernel.config.loading import defaults
from pipeline import extras
from tests.pipeline.export_rig import STREAM, status
from tests.pipeline.lake_rig import Lake
from tests.stack.conftest import CommandLine


@pytest.fixture
def cli(tmp_path: Path, config: Config) -> CommandLine:
    store = config.object_store
    return CommandLine(
        tmp_path,
        {
            "REDIS_ADDR": config.redis.addr,
            "FETCHBOX_OBJECT_STORE_ENDPOINT": store.endpoint,
            "FETCHBOX_OBJECT_STORE_ACCESS_KEY_ID": store.access_key_id,
            "FETCHBOX_OBJECT_STORE_SECRET_ACCESS_KEY": store.secret_access_key,
            "FETCHBOX_OBJECT_STORE_BUCKET": store.bucket,
        },
    )


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> ModuleSpec | None:
        return None if name == "pyarrow" else find_spec(name)

    monkeypatch.setattr(extras, "find_spec", found)


def test_once_ends_when_everything_up_to_now_is_in_the_lake(config: Config, lake: Lake, cli: CommandLine) -> None:
    host, _, port = config.redis.addr.partition(":")
    with redis.Redis(host, int(port)) as client:
        ids = [client.xadd(STREAM, {"payload": status(number)}).decode() for number in range(25)]
    first = cli.run("export", "--once")
    assert (first.returncode, first.stdout) == (0, ""), first
    assert "25 entries are in the lake now" in first.stderr
    [segment] = lake.keys("raw/status/")
    assert lake.read(segment).column("entry_id").to_pylist() == ids
    again = cli.run("export", "--once", "--json")
    assert (again.returncode, json.loads(again.stdout)) == (0, {"exported": 0}), again


def test_once_ends_with_4_where_redis_does_not_answer(cli: CommandLine) -> None:
    ended = cli.run("export", "--once", environ={"REDIS_ADDR": "127.0.0.1:9", "FETCHBOX_REDIS_START_PATIENCE": "0s"})
    assert ended.returncode == 4, ended
    assert "Traceback" not in ended.stderr


@pytest.mark.usefixtures("without_pyarrow")
def test_who_asks_for_an_exporter_without_its_packages_is_told_how_to_get_them(cli: CommandLine) -> None:
    for command in (("export",), ("export", "--once"), ("serve", "--role=exporter")):
        ended = cli.run(*command)
        assert ended.returncode == USAGE, ended
        assert "pip install '.[export]'" in ended.stderr
    with pytest.raises(CommandError, match="pyarrow is not installed"):
        chosen([Role.EXPORTER], defaults())


@pytest.mark.usefixtures("without_pyarrow")
@pytest.mark.req("R002-cli.01")
def test_all_roles_are_all_that_can_be_without_the_packages() -> None:
    roles = chosen([Role.ALL], defaults())
    assert Role.OPERATOR in roles
    assert Role.EXPORTER not in roles
