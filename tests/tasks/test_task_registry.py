"""How tasks get their handlers: from the configuration, with secrets filled in, or a start that says what is wrong."""

from pathlib import Path

import pytest

from kernel.config.loading import ConfigError, load
from tests.tasks.model_server import ModelServer
from tests.tasks.own_handlers import LIFE, Echo
from tests.tasks.recorder import Recorder
from worker_svc.tasks import TaskHandlers
from worker_svc.tasks.callback import CallbackHandler
from worker_svc.tasks.openai import OpenAiHandler


def handlers(tmp_path: Path, text: str, **secrets: str) -> TaskHandlers:
    path = tmp_path / "fetchbox.toml"
    declared = "".join(f'[secrets.{name}]\nsource = "env:{name}"\nuses = ["task_endpoint"]\n' for name in secrets)
    path.write_text(f"{text}\n{declared}")
    return TaskHandlers(load(path, {}), secrets)


def test_each_configured_task_has_its_handler(tmp_path: Path) -> None:
    made = handlers(
        tmp_path,
        """
        [tasks.chat]
        endpoint = "http://127.0.0.1:1/v1"
        [tasks.rag]
        endpoint = "http://127.0.0.1:1/hook"
        [tasks.code]
        handler = "tests.tasks.own_handlers:Echo"
        [tasks.plan]
        handler = "tests.tasks.own_handlers.Echo"
        [tasks.tool]
        handler = "remote"
        """,
    )
    kinds = {name: type(made.get(name)) for name in made}
    assert kinds == {"chat": OpenAiHandler, "rag": CallbackHandler, "code": Echo, "plan": Echo}
    assert made.remote == {"tool"}
    assert made.get("tool") is None
    assert made.get("embed") is None


def test_a_handler_is_told_its_settings(tmp_path: Path) -> None:
    made = handlers(
        tmp_path,
        """
        [fetcher]
        connect_timeout = "3s"
        max_retry_after = "2m"
        [tasks]
        max_result_bytes = 5000
        [tasks.chat]
        handler = "tests.tasks.own_handlers:Echo"
        endpoint = "http://127.0.0.1:1/v1"
        model = "owl"
        api_key = "${secret:KEY}"
        read_timeout = "500ms"
        headers = { "X-Team" = "t-${secret:TEAM}" }
        options = { system = "Be brief.", temperature = 0 }
        [tasks.plan]
        handler = "tests.tasks.own_handlers:Echo"
        """,
        KEY="sk-1",
        TEAM="red",
    )
    chat, plan = made.get("chat"), made.get("plan")
    assert chat is not None
    assert plan is not None
    told = chat.settings
    assert (told.task, told.endpoint, told.model, told.api_key) == ("chat", "http://127.0.0.1:1/v1", "owl", "sk-1")
    assert told.headers["x-team"] == "t-red"
    assert told.options == {"system": "Be brief.", "temperature": 0}
    assert (told.connect_timeout, told.read_timeout, told.max_retry_after) == (3.0, 0.5, 120.0)
    assert told.max_result_bytes == 5000
    assert plan.settings.read_timeout == 30.0
    assert "sk-1" not in repr(told)
    assert "t-red" not in repr(told)


@pytest.mark.parametrize(
    ("lines", "key", "said"),
    [
        ('handler = "no_such_package:Class"', "tasks.chat.handler", "PYTHONPATH"),
        ('handler = "no_such_entry"', "tasks.chat.handler", "fetchbox.task_handlers"),
        ('handler = "tests.tasks.own_handlers:Missing"', "tasks.chat.handler", "TaskHandler"),
        ('handler = "tests.tasks.own_handlers:LIFE"', "tasks.chat.handler", "TaskHandler"),
        ('handler = "tests.tasks.own_handlers:Refusing"', "tasks.chat.handler", "no such owl"),
        ('endpoint = "http://"', "tasks.chat.endpoint", "URL"),
        ('endpoint = "http://u:p@h/v1"\napi_key = "k"', "tasks.chat.handler", "user information"),
        ('endpoint = "http://h/v1"\napi_key = "${secret:NONE}"', "tasks.chat.api_key", "NONE"),
        ('endpoint = "http://h/v1"\napi_key = "a\\nb"', "tasks.chat.api_key", "header"),
        ('endpoint = "http://h/v1"\nheaders = { "X-A" = "${secret:NONE}" }', "tasks.chat.headers.X-A", "NONE"),
        ('endpoint = "http://h/v1"\nheaders = { "Host" = "x" }', "tasks.chat.headers.Host", "connection"),
        ('endpoint = "http://h/v1"\nheaders = { "a b" = "x" }', "tasks.chat.headers.a b", "header"),
    ],
)
def test_what_cannot_be_had_ends_the_start_and_is_named(tmp_path: Path, lines: str, key: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        handlers(tmp_path, f"[tasks.chat]\n{lines}\n")
    assert caught.value.key == key
    assert said in caught.value.rule


async def test_handlers_are_started_and_closed_whatever_one_of_them_does(tmp_path: Path) -> None:
    LIFE.clear()
    echo = 'handler = "tests.tasks.own_handlers:Echo"'
    bad = 'handler = "tests.tasks.own_handlers:Echo"\noptions = { bad = true }'
    made = handlers(tmp_path, f"[tasks.chat]\n{echo}\n[tasks.plan]\n{bad}\n[tasks.code]\n{echo}")
    await made.start()
    await made.drain(1.0)
    await made.stop()
    await made.stop()
    assert LIFE == ["start chat", "start plan", "start code", "close code", "close plan", "close chat"]
    LIFE.clear()
    late = 'handler = "tests.tasks.own_handlers:NotStarting"'
    made = handlers(tmp_path, f"[tasks.chat]\n{echo}\n[tasks.code]\n{late}")
    with pytest.raises(RuntimeError, match="no start"):
        await made.start()
    await made.stop()
    assert LIFE == ["start chat", "close code", "close chat"]


async def test_a_configured_endpoint_is_asked(tmp_path: Path, server: ModelServer) -> None:
    server.api_key = "sk-9"
    made = handlers(
        tmp_path, f'[tasks.chat]\nendpoint = "{server.url("/v1/?api-version=1")}"\napi_key = "${{secret:K}}"', K="sk-9"
    )
    await made.start()
    chat = made.get("chat")
    assert chat is not None
    assert (await chat.run({"prompt": "hello there"}, Recorder()))["text"] == "hello there"
    await made.stop()
    assert server.seen[0].path == "/v1/chat/completions?api-version=1"
    assert server.seen[0].headers["User-Agent"].startswith("FetchBox/")
