"""Tasks on the command line, with a whole platform and a model: text as it comes, failures, restarts, other workers."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from cli.local import LocalPlatform
from cli.serve import Role
from tests.stack.conftest import ENVIRON, CommandLine, Ended
from tests.stack.model_thread import Gate
from tests.tasks.model_server import ModelServer, chunk, document, sse, stream

PROMPT = '{"prompt": "Nothing is lost here."}'
CREATE = ("jobs", "create", "--task", "chat", "--payload")


def documents(run: Ended) -> list[dict[str, Any]]:
    """The JSON documents of stdout, one a line."""
    return [json.loads(line) for line in run.stdout.splitlines()]


@contextmanager
def running(line: CommandLine, *args: str) -> Iterator["subprocess.Popen[str]"]:
    """A command in the background, killed in the end if need be."""
    with subprocess.Popen(
        line.argv(*args),
        cwd=line.directory,
        env=line.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read(process: "subprocess.Popen[str]", text: str) -> None:
    """Reads stdout up to the end of a text, or fails when something else comes."""
    assert process.stdout is not None
    assert process.stdout.read(len(text)) == text


@pytest.fixture
def waiting(connected: CommandLine) -> str:
    """A job of a task that is done elsewhere, where nobody is."""
    run = connected.run("jobs", "create", "--task", "plan", "--payload", "{}", "--json")
    assert run.returncode == 0, run
    return str(json.loads(run.stdout)["job_id"])


@pytest.fixture
def store(platform: LocalPlatform) -> Iterator[redis.Redis]:
    """The platform's Redis, for a worker that is none of ours."""
    host, _, port = platform.environ["REDIS_ADDR"].rpartition(":")
    with redis.Redis(host, int(port)) as client:
        yield client


@pytest.mark.req("R004-goal.01", "R004-goal.02")
def test_the_text_of_a_task_is_stdout_and_nothing_else(connected: CommandLine, model: ModelServer) -> None:
    run = connected.run(*CREATE, PROMPT, "--watch")
    assert (run.returncode, run.stdout) == (0, "Nothing is lost here."), run
    assert model.seen[-1].body["messages"] == [{"role": "user", "content": "Nothing is lost here."}]


def test_tokens_are_printed_as_they_come(connected: CommandLine, model: ModelServer) -> None:
    gate = Gate()
    model.then(gate.between("Here ", "and there."))
    with running(connected, *CREATE, PROMPT, "--watch") as process:
        read(process, "Here ")
        gate.open()
        read(process, "and there.")
        assert process.wait(30) == 0


def test_for_programs_each_event_is_a_line_and_then_the_job(connected: CommandLine, model: ModelServer) -> None:
    run = connected.run(*CREATE, '{"prompt": "one two", "n": 1}', "--watch", "--json")
    *events, job = documents(run)
    assert (run.returncode, run.stderr) == (0, "")
    assert [event["type"] for event in events if event["type"] != "token"] == ["queued", "running", "done"]
    assert "".join(event["data"]["text"] for event in events if event["type"] == "token") == "one two"
    assert (job["status"], job["result"]["text"]) == ("done", "one two")
    assert job["payload"] == {"prompt": "one two", "n": 1}
    assert job["error"] is None


def test_a_task_without_tokens_prints_its_result(connected: CommandLine, model: ModelServer) -> None:
    run = connected.run(
        "jobs", "create", "--task", "embed", "--payload", "-", "--watch", stdin='{"input": ["a", "bc"]}'
    )
    assert run.returncode == 0, run
    assert json.loads(run.stdout)["embeddings"] == [[0.0, 1.0], [1.0, 2.0]]


@pytest.mark.parametrize("way", ["file", "argument", "stdin"])
def test_a_payload_comes_from_a_file_an_argument_or_stdin(connected: CommandLine, way: str) -> None:
    text = '{\n  "number": 847458834325543643,\n  "text": "ä"}'
    (connected.directory / "payload.json").write_text(text, encoding="utf-8")
    given = {"file": "@payload.json", "argument": text, "stdin": "-"}[way]
    run = connected.run("jobs", "create", "--task", "plan", "--payload", given, "--ttl", "90", "--json", stdin=text)
    job = json.loads(connected.run("jobs", "get", json.loads(run.stdout)["job_id"], "--json").stdout)
    assert (job["payload"], job["ttl_s"]) == ({"number": 847458834325543643, "text": "ä"}, 90)


def test_another_attempt_starts_the_text_anew_and_says_so(connected: CommandLine, model: ModelServer) -> None:
    model.then(stream(sse(chunk("Half ")), end="hang up"))
    run = connected.run(*CREATE, PROMPT, "--watch")
    assert (run.returncode, run.stdout) == (0, "Half Nothing is lost here."), run
    assert "retry: attempt=1 code=HANDLER_CONNECTION" in run.stderr
    assert "the text starts anew" in run.stderr


def test_a_failure_ends_with_1_and_says_what_to_do(connected: CommandLine, model: ModelServer) -> None:
    model.then(document({"error": {"message": "no such key"}}, status=401))
    run = connected.run(*CREATE, PROMPT, "--watch")
    assert (run.returncode, run.stdout) == (1, ""), run
    assert "error: HANDLER_HTTP_401: " in run.stderr
    assert "no such key" in run.stderr
    assert "api_key of [tasks.chat]" in run.stderr
    assert "fetchbox dlq replay --job" in run.stderr


def test_a_failed_task_is_a_dead_letter_that_can_be_replayed(connected: CommandLine, model: ModelServer) -> None:
    model.then(document({"error": {"message": "too hot"}}, status=400))
    run = connected.run(*CREATE, PROMPT, "--watch", "--json")
    job = documents(run)[-1]
    assert (run.returncode, run.stderr) == (1, "")
    assert (job["status"], job["error"]["code"], job["error"]["attempts"]) == ("error", "HANDLER_HTTP_400", 1)
    assert "HANDLER_HTTP_400" in connected.run("jobs", "get", job["job_id"]).stdout
    header, letter = (line.split("\t") for line in _letters(connected, job["job_id"]))
    assert dict(zip(header, letter, strict=True))["task"] == "chat"
    assert connected.run("dlq", "replay", "--job", job["job_id"]).returncode == 0
    unknown = connected.run("dlq", "replay", "--job", "nothing")
    assert unknown.returncode == 1
    assert "there is no dead letter of the job nothing" in unknown.stderr
    again = connected.run("jobs", "watch", job["job_id"])
    assert (again.returncode, again.stdout) == (0, "Nothing is lost here."), again


def _letters(line: CommandLine, job: str) -> list[str]:
    """The lines of `dlq list`, once there is a letter: it is published after the end of its job."""
    deadline = time.monotonic() + 30
    while len(lines := line.run("dlq", "list", "--job", job).stdout.splitlines()) < 2:
        assert time.monotonic() < deadline, f"{job} left no dead letter"
        time.sleep(0.05)
    return lines


def test_a_watch_survives_a_restart_of_the_service(
    connected: CommandLine, platform: LocalPlatform, model: ModelServer
) -> None:
    gate = Gate()
    model.then(gate.between("Before, ", "after."))
    with running(connected, *CREATE, PROMPT, "--watch") as process:
        read(process, "Before, ")
        platform.roles[Role.INGEST].kill9()
        assert any("ingest ended with code -9" in event for event in platform.mend())
        gate.open()
        assert process.communicate(timeout=60)[0] == "after."
        assert process.returncode == 0


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_return(connected: CommandLine, model: ModelServer) -> None:
    gate = Gate()
    model.then(gate.between("Wait ", "for it."))
    with running(connected, *CREATE, PROMPT, "--watch") as process:
        read(process, "Wait ")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
        assert process.returncode == 130
    job = said.partition("fetchbox jobs watch ")[2].partition("`")[0]
    assert f"fetchbox jobs cancel {job}" in said
    gate.open()
    run = connected.run("jobs", "watch", job)
    assert (run.returncode, run.stdout) == (0, "Wait for it."), run
    shown = json.loads(connected.run("jobs", "get", job, "--json").stdout)
    assert shown["result"]["text"] == "Wait for it."
    assert "Wait for it." in connected.run("jobs", "get", job).stdout


def test_a_task_that_is_not_configured_is_refused_with_what_to_write_down(connected: CommandLine) -> None:
    run = connected.run("jobs", "create", "--task", "code", "--payload", "{}")
    assert run.returncode == 3, run
    assert "UNSUPPORTED_JOB_TYPE" in run.stderr
    assert '[tasks.code]\n  endpoint = "http' in run.stderr


def test_one_key_is_one_job(connected: CommandLine) -> None:
    args = ("jobs", "create", "--task", "plan", "--idempotency-key", "plan-1", "--json", "--payload")
    first, second = (json.loads(connected.run(*args, '{"a": 1}').stdout) for _ in range(2))
    assert first == second
    conflict = connected.run(*args, '{"a": 2}')
    assert conflict.returncode == 3
    assert json.loads(conflict.stderr)["error"]["reason"] == "IDEMPOTENCY_CONFLICT"


def test_what_only_the_server_finds_wrong_is_refused(connected: CommandLine) -> None:
    run = connected.run("jobs", "create", "--task", "plan", "--payload", '{"a": 1, "a": 2}')
    assert run.returncode == 3, run
    assert "INVALID_PAYLOAD" in run.stderr
    assert "payload" in run.stderr


def test_tasks_are_listed_beside_manifests(connected: CommandLine, waiting: str) -> None:
    header, *rows = (line.split("\t") for line in connected.run("jobs", "list", "--task", "plan").stdout.splitlines())
    listed = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert {row["task"] for row in listed.values()} == {"plan"}
    assert listed[waiting]["status"] == "queued"
    assert [listed[waiting][name] for name in ("stored", "failed", "total")] == ["", "", ""], "it has no resources"
    others = json.loads(connected.run("jobs", "list", "--task", "fetch", "--json").stdout)["jobs"]
    assert all(job["task"] == "fetch" for job in others)


def test_a_waiting_task_is_canceled(connected: CommandLine, waiting: str) -> None:
    assert json.loads(connected.run("jobs", "cancel", waiting, "--json").stdout)["status"] == "canceled"
    assert "canceled" in connected.run("jobs", "cancel", waiting).stdout
    run = connected.run("jobs", "watch", waiting)
    assert (run.returncode, run.stdout) == (1, "")
    assert "the job was canceled" in run.stderr


def test_a_running_task_is_canceled(connected: CommandLine, model: ModelServer) -> None:
    model.then(Gate().between("On and ", "on."))
    with running(connected, *CREATE, PROMPT, "--watch", "--idempotency-key", "to-cancel") as process:
        read(process, "On and ")
        job = json.loads(connected.run(*CREATE, PROMPT, "--idempotency-key", "to-cancel", "--json").stdout)["job_id"]
        assert connected.run("jobs", "cancel", job).returncode == 0
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert "the job was canceled" in err


def test_a_tenant_sees_the_tasks_that_are_its_own(cli: CommandLine, tmp_path: Path, model: ModelServer) -> None:
    config = tmp_path / "fetchbox.toml"
    config.write_text(
        '[security]\noperator_tokens = ["op"]\ntenant_tokens = { "acme-key" = "acme", "other-key" = "other" }\n'
        f'[tasks.chat]\nendpoint = "{model.url()}"\n'
    )
    with LocalPlatform(tmp_path / "data", config, any_ports=True, environ=ENVIRON) as platform:
        cli.environ |= platform.environ | {"FETCHBOX_TOKEN": "acme-key"}
        created = cli.run(*CREATE, PROMPT, "--watch", "--json")
        job = documents(created)[-1]
        assert (created.returncode, job["tenant"], job["status"]) == (0, "acme", "done"), created
        for token in ("acme-key", "op"):
            run = cli.run("jobs", "watch", job["job_id"], environ={"FETCHBOX_TOKEN": token})
            assert (run.returncode, run.stdout) == (0, "Nothing is lost here."), run
        for call in ("get", "watch", "cancel"):
            assert "NOT_FOUND" in cli.run("jobs", call, job["job_id"], environ={"FETCHBOX_TOKEN": "other-key"}).stderr
        unknown = cli.run("jobs", "get", job["job_id"], environ={"FETCHBOX_TOKEN": "x"})
        assert "UNAUTHORIZED: this is no token that is known" in unknown.stderr


def test_without_the_operator_service_tasks_are_found(connected: CommandLine, waiting: str) -> None:
    nobody = {"FETCHBOX_OPERATOR": "127.0.0.1:9"}
    assert json.loads(connected.run("jobs", "get", waiting, "--json", environ=nobody).stdout)["task"] == "plan"
    assert connected.run("jobs", "cancel", waiting, environ=nobody).returncode == 0
    assert connected.run("jobs", "watch", waiting, environ=nobody).returncode == 1
    missing = connected.run("jobs", "get", "nowhere", environ=nobody)
    assert (missing.returncode, "NOT_FOUND" in missing.stderr) == (3, True)


@pytest.mark.req("R004-events.01", "R004-events.07", "R004-goal.03")
def test_events_of_a_worker_that_is_none_of_ours_are_shown(
    connected: CommandLine, store: redis.Redis, waiting: str
) -> None:
    bare = BareWorker(store, waiting)
    bare.event("running", "{}")
    bare.event("progress", '{"done": 1, "total": 2}')
    bare.event("log", '{"message": "looking it up", "where": "here"}')
    bare.event("token", '{"text": "It is "}')
    with running(connected, "jobs", "watch", waiting) as process:
        read(process, "It is ")
        bare.event("sources", '{"urls": ["http://a/"]}')
        bare.event("token", '{"text": "so \\ud83d\\ude00"}')
        bare.end("done", result='"It is so"')
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "so \U0001f600"), err
    assert err.splitlines() == ["progress: done=1 total=2", "looking it up where=here", 'sources: urls=["http://a/"]']


def test_in_a_terminal_notes_have_lines_of_their_own(connected: CommandLine, store: redis.Redis, waiting: str) -> None:
    bare = BareWorker(store, waiting)
    bare.event("running", "{}")
    bare.event("progress", '{"done": 1, "total": 2}')
    bare.event("token", '{"text": "One"}')
    bare.event("log", '{"message": "then"}')
    bare.event("token", '{"text": " two"}')
    bare.event("running", '{"attempt": 2}')
    bare.event("token", '{"text": "Three"}')
    bare.end("done", result="{}")
    seen = connected.in_terminal("jobs", "watch", waiting)
    assert "1/2" in seen, "the bar"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    lines = plain[plain.index("One") :].splitlines()
    assert lines == ["One", "then", " two", "another attempt: the text starts anew", "Three"]


@pytest.mark.parametrize("error", ['{"why": "tired"}', '"tired"', "tired"])
def test_a_failure_of_a_worker_that_is_none_of_ours_is_told(
    connected: CommandLine, store: redis.Redis, waiting: str, error: str
) -> None:
    BareWorker(store, waiting).end("error", error=error)
    run = connected.run("jobs", "watch", waiting)
    assert run.returncode == 1, run
    assert run.stderr.startswith("error: ")
    assert "tired" in run.stderr


class BareWorker:
    """Writes state and events as seed 004 has it."""

    def __init__(self, store: redis.Redis, job_id: str) -> None:
        self._store = store
        self._job = job_id

    def event(self, kind: str, data: str) -> None:
        """One event."""
        fields = {"type": kind, "ts": str(time.time_ns() // 1_000_000), "step": "bare", "data": data}
        self._store.xadd(f"job:{self._job}:events", fields)

    def end(self, status: str, **fields: str) -> None:
        """The last state, and after it the last event."""
        self._store.hset(f"job:{self._job}", mapping={"status": status, **fields})
        self.event(status, "{}")


def test_a_file_makes_a_job_a_line_and_resumes(connected: CommandLine) -> None:
    file = connected.directory / "plans.jsonl"
    file.write_text('{"n": 1}\n\n{"n": 2}\n[3]\n{"n": 1}\n')
    create = ("jobs", "create", "--task", "plan", "--from", str(file), "--resumable")
    first, again = connected.run(*create), connected.run(*create)
    assert first.returncode == again.returncode == 1
    assert first.stdout == again.stdout
    made = dict(line.split("\t") for line in first.stdout.splitlines())
    assert list(made) == ["1", "3", "5"]
    assert len(set(made.values())) == 3, "equal lines are two jobs"
    assert "line 4: INVALID_PAYLOAD: payload: must be an object" in first.stderr
    assert "3 created, 1 failed: 1 INVALID_PAYLOAD" in first.stderr
    assert json.loads(connected.run("jobs", "get", made["3"], "--json").stdout)["task"] == "plan"
    with file.open("a") as more:
        more.write('{"n": 4}')
    grown = connected.run(*create, "--json")
    found = documents(grown)
    assert [one["job_id"] for one in found[:2] + found[3:4]] == list(made.values())
    assert (found[2]["line"], found[2]["reason"], found[4]["line"]) == (4, "INVALID_PAYLOAD", 6)


def test_lines_without_a_task_are_whole_jobs_and_options_for_one_job_are_refused(connected: CommandLine) -> None:
    orders = [{"task": "plan", "payload": {"n": 1}, "idempotency_key": "mine"}, {"task": "plan"}, {"tusk": "plan"}]
    run = connected.run("jobs", "create", "--from", "-", "--json", stdin="\n".join(map(json.dumps, orders)))
    assert run.returncode == 1
    assert [one.get("reason") for one in sorted(documents(run), key=lambda one: one["line"])] == [
        *(None, "INVALID_PAYLOAD", "INVALID_PAYLOAD"),
    ]
    for wrong in (("--from", "-", "--watch"), ("--task", "plan"), ("--task", "plan", "--payload", "{}", "--resumable")):
        assert connected.run("jobs", "create", *wrong).returncode == 2
    assert connected.run("jobs", "create", "--from", "nowhere.jsonl").returncode == 2
