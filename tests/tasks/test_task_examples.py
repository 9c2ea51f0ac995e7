"""What docs/handlers.md and examples/handlers show of tasks runs."""

import re
from pathlib import Path

import pytest

from kernel.config.loading import load
from kernel.handlers import TaskError, TaskHandler
from tests.tasks.model_server import ModelServer, stream
from tests.tasks.recorder import Recorder
from worker_svc.tasks import TaskHandlers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/handlers.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def handlers(tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> TaskHandlers:
    """The handlers of the page's configuration, with the endpoints on loopback."""
    monkeypatch.syspath_prepend(ROOT / "examples/handlers")
    text = re.sub(r'endpoint = "https?://[^/]+', f'endpoint = "{server.url("")}', block("toml"))
    text = text.replace('hosts = ["api.openai.com"]', f'hosts = ["127.0.0.1:{server.port}"]')
    path = tmp_path / "fetchbox.toml"
    path.write_text(text)
    return TaskHandlers(load(path, {}), {"OPENAI": "sk-right"})


def handler(handlers: TaskHandlers, task: str) -> TaskHandler:
    found = handlers.get(task)
    assert found is not None
    return found


async def test_the_page_and_its_configuration_run(handlers: TaskHandlers, server: ModelServer) -> None:
    await handlers.start()
    assert (await handler(handlers, "chat").run({"prompt": "hello there"}, Recorder()))["text"] == "hello there"
    assert server.seen[-1].body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (await handler(handlers, "embed").run({"text": "ab"}, Recorder("embed")))["embeddings"] == [[0.0, 2.0]]
    server.then(stream(block("jsonl").encode(), content_type="application/x-ndjson"))
    run = Recorder("rag")
    assert await handler(handlers, "rag").run({}, run) == {"sources": []}
    assert [kind for kind, _ in run.events] == ["progress", "token", "log"]
    await handlers.stop()


async def test_the_handler_in_five_lines(handlers: TaskHandlers) -> None:
    run = Recorder("code")
    assert await handler(handlers, "code").run({"prompt": "be heard"}, run) == {"text": "BE HEARD"}
    assert run.tokens == ["BE ", "HEARD "]
    assert (ROOT / "examples/handlers/task_shout.py").read_text().endswith(block("python"))


async def test_the_handler_with_progress(handlers: TaskHandlers) -> None:
    run = Recorder("plan")
    lengths = handler(handlers, "plan")
    assert await lengths.run({"texts": ["a", "bcd"]}, run) == {"unit": "characters", "lengths": [1, 3]}
    assert run.events == [
        ("log", {"message": "measuring", "texts": 2}),
        ("progress", {"done": 1, "total": 2}),
        ("progress", {"done": 2, "total": 2}),
    ]
    with pytest.raises(TaskError, match="must be a list"):
        await lengths.run({}, run)
