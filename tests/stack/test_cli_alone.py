"""The command line without a platform: wrong usage, no server, configuration, and what it prints where."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.create import Task
from cli.main import app
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.config.loading import TASKS
from tests.stack.conftest import CommandLine

NO_SERVER = {f"FETCHBOX_{service}": "127.0.0.1:9" for service in ("INGEST", "OPERATOR", "WORKER", "GATEWAY")}
CALLS = [
    ("submit", "manifest.json"),
    ("submit", "manifest.json", "--rest"),
    ("submit", "manifest.json", "--watch"),
    ("jobs", "create", "--task", "chat", "--payload", "{}"),
    ("jobs", "create", "--task", "chat", "--payload", "{}", "--watch"),
    ("jobs", "get", "a"),
    ("jobs", "list"),
    ("jobs", "logs", "a"),
    ("jobs", "cancel", "a"),
    ("jobs", "watch", "a"),
    ("jobs", "export"),
    ("dlq", "list"),
    ("dlq", "replay", "0:1-1"),
    ("dlq", "purge", "0:1-1", "--yes"),
    ("files", "queues"),
    ("files", "dlq"),
    ("files", "replay", "--all"),
    ("files", "purge", "--all", "--yes"),
    ("breakers", "list"),
    ("breakers", "reset", "task:chat"),
    ("streams", "list"),
    ("flows", "start", "ship", "--watch"),
    ("flows", "get", "a"),
    ("flows", "list"),
    ("flows", "watch", "a"),
    ("flows", "logs", "a", "b"),
    ("flows", "trigger", "a", "b"),
    ("flows", "cancel", "a"),
    ("flows", "cancel-gate", "a", "b"),
    ("flows", "publish", "order.paid"),
    ("health",),
    ("worker", "status"),
    ("worker", "pause"),
]


def _commands(group: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, one in group.commands.items():
        found += _commands(one, (*path, name)) if hasattr(one, "commands") else [((*path, name), one)]
    return found


COMMANDS = _commands(typer.main.get_command(app))


@pytest.mark.parametrize(("path", "one"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_command_teaches_with_an_example_and_has_json(path: tuple[str, ...], one: Any) -> None:
    assert f"fetchbox {path[0]}" in one.help or "fetchbox --" in one.help, "an example in the help"
    assert any("--json" in option.opts for option in one.params)
    assert all(option.help for option in one.params), "every option is explained"


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_without_a_server_it_says_what_to_do_next(cli: CommandLine, call: tuple[str, ...]) -> None:
    (cli.directory / "manifest.json").write_text("{}")
    run = cli.run(*call, "--json", environ=NO_SERVER)
    assert (run.returncode, run.stdout) == (4, ""), run
    error = json.loads(run.stderr)["error"]
    assert "127.0.0.1:9" in error["message"]
    assert "fetchbox up" in error["hint"]


def test_a_failed_submit_names_the_key_to_repeat_it_with(cli: CommandLine) -> None:
    run = cli.run("submit", "-", "--idempotency-key", "crawl-17", stdin="{}", environ=NO_SERVER)
    assert run.returncode == 4
    assert "--idempotency-key crawl-17" in run.stderr


def test_a_failed_creation_names_the_key_to_repeat_it_with(cli: CommandLine) -> None:
    run = cli.run("jobs", "create", "--task=chat", "--payload={}", "--idempotency-key=k-17", environ=NO_SERVER)
    assert run.returncode == 4
    assert "--idempotency-key k-17" in run.stderr


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("", "--payload:1:1: is no JSON"),
        ('{"a": 1', "--payload:1:8: is no JSON"),
        ('{"a": NaN}', "--payload: is no JSON: NaN is not allowed"),
        ("[1]", "--payload: must be a JSON object, not an array"),
        ("7", "--payload: must be a JSON object, not a number"),
        ("null", "--payload: must be a JSON object, not null"),
        ("@missing.json", "cannot read missing.json: No such file"),
        ("@.", "cannot read .: Is a directory"),
        ("@broken.json", "broken.json:2:8: is no JSON"),
        ("@latin.json", "latin.json: is no text in UTF-8: byte 8"),
        ("@deep.json", "deep.json: is nested too deeply"),
        ("@large.json", "large.json: has 204801 bytes, and at most 204800 are allowed (tasks.max_payload_bytes)"),
        ("-", "stdin:1:2: is no JSON"),
    ],
)
def test_a_bad_payload_is_told_before_it_is_sent(cli: CommandLine, payload: str, said: str) -> None:
    (cli.directory / "broken.json").write_text('{\n  "a": b\n}')
    (cli.directory / "latin.json").write_bytes('{"a": "ä"}'.encode("latin-1"))
    (cli.directory / "deep.json").write_text('{"a":' + 50_000 * "[")
    (cli.directory / "large.json").write_text('{"a": "' + (204_801 - 9) * "x" + '"}')
    run = cli.run("jobs", "create", "--task", "chat", "--payload", payload, stdin="{]", environ=NO_SERVER)
    assert (run.returncode, run.stdout) == (2, ""), run
    assert f"error: {said}" in run.stderr


def test_the_largest_payload_is_sent_and_a_configuration_may_allow_more(cli: CommandLine) -> None:
    (cli.directory / "largest.json").write_text('{"a": "' + (204_800 - 9) * "x" + '"}')
    (cli.directory / "larger.json").write_text('{"a": "' + (204_801 - 9) * "x" + '"}')
    create = ("jobs", "create", "--task", "chat", "--payload")
    assert cli.run(*create, "@largest.json", environ=NO_SERVER).returncode == 4
    more = NO_SERVER | {"FETCHBOX_TASKS_MAX_PAYLOAD_BYTES": "300000"}
    assert cli.run(*create, "@larger.json", environ=more).returncode == 4


def test_a_failed_start_of_a_flow_names_what_to_repeat_it_with(cli: CommandLine) -> None:
    for option, value in (("--key", "k-17"), ("--id", "run-17")):
        run = cli.run("flows", "start", "ship", option, value, environ=NO_SERVER)
        assert run.returncode == 4
        assert f"{option} {value}" in run.stderr
    assert "--key cli-" in cli.run("flows", "start", "ship", environ=NO_SERVER).stderr


def test_the_tasks_of_the_command_line_are_those_of_the_configuration() -> None:
    assert tuple(Task) == TASKS


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("submit", "missing.json"), "cannot read missing.json"),
        (("submit",), "Missing argument"),
        (("submit", "x", "--nonsense"), "No such option"),
        (("nonsense",), "No such command"),
        (("jobs", "list", "--limit", "0"), "greater than or equal to 1"),
        (("jobs", "create", "--payload", "{}"), "--task"),
        (("jobs", "create", "--task", "chat"), "--payload"),
        (("jobs", "create", "--task", "sing", "--payload", "{}"), "'chat', 'plan', 'code', 'tool', 'rag'"),
        (("jobs", "create", "--task", "chat", "--payload", "{}", "--ttl", "59"), "--ttl"),
        (("dlq", "replay"), "positions"),
        (("dlq", "replay", "0:1-1", "--job", "a"), "positions"),
        (("dlq", "purge", "--older-than", "soon", "--yes"), "'soon' is no age"),
        (("dlq", "purge", "0:1-1"), "--yes"),
        (("files", "replay"), "name either digests or --code or --all"),
        (("files", "replay", "a" * 40, "--all"), "name either digests or --code or --all"),
        (("files", "purge", "--yes"), "name either digests or --all"),
        (("files", "purge", "a" * 40, "--all", "--yes"), "name either digests or --all"),
        (("files", "purge", "--all"), "--yes"),
        (("files", "dlq", "--limit", "501"), "--limit"),
        (("breakers", "reset"), "Missing argument"),
        (("flows", "start", "ship", "--input", "{"), "--input:1:2: is no JSON"),
        (("flows", "start", "ship", "--input", "@missing.json"), "cannot read missing.json"),
        (("flows", "trigger", "a", "b", "--payload", "yes"), """a text stands in quotes: '"text"'"""),
        (("flows", "publish", "order.paid", "--data", "NaN"), "--data: is no JSON: NaN is not allowed"),
        (("flows", "list", "--status", "lost"), "'running', 'completed', 'failed', 'cancelled'"),
        (("flows", "definitions"), "no flows"),
        (("publish-task",), "--url"),
        (("publish-task", "--url", "http://a/", "--header", "nocolon"), "name: value"),
        (("publish-task", "missing.json"), "cannot read missing.json"),
        (("serve", "--role=nonsense"), "nonsense"),
        (("--gateway", "ftp://x", "submit", "/dev/null", "--rest"), "http(s)"),
        (("--ca-file", "missing.pem", "jobs", "list"), "cannot read missing.pem"),
    ],
)
def test_wrong_usage_ends_with_2(cli: CommandLine, call: tuple[str, ...], words: str) -> None:
    run = cli.run(*call)
    assert (run.returncode, run.stdout) == (2, ""), run
    assert words in re.sub(r"\s+", " ", run.stderr)


@pytest.mark.req("R002-cli.03")
def test_a_missing_configuration_file_means_defaults(cli: CommandLine) -> None:
    """Where none was named, and for `up`; elsewhere one that was named must be there (ADR 0019)."""
    shown = cli.run("config", "show", "--json")
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["worker"]["count"] == 16
    run = cli.run("up", "--config", "missing.toml", environ={"WORKER_COUNT": "no"})
    assert "there is no missing.toml: the defaults hold" in run.stderr
    assert "the environment" in run.stderr, "what is wrong is not said of a file that is not there"


@pytest.mark.req("R002-cli.02", "R002-cli.04", "R002-cli.05")
@pytest.mark.parametrize(
    "call", [("config", "check"), ("config", "show"), ("serve", "--role=worker", "--config"), ("up", "--config")]
)
def test_a_wrong_configuration_is_fatal_and_names_the_keys(cli: CommandLine, call: tuple[str, ...]) -> None:
    (cli.directory / "bad.toml").write_text("[worker]\ncount = 0\nmax_retries = -1\n")
    run = cli.spawn(*call, "bad.toml")
    assert run.returncode == 2, run
    assert "worker.count" in run.stderr
    assert "worker.max_retries" in run.stderr
    assert "2 keys are wrong" in run.stderr
    assert "Traceback" not in run.stderr


def test_every_unknown_key_is_named(cli: CommandLine) -> None:
    (cli.directory / "bad.yaml").write_text("worker: {counts: 3}\nredis: {adr: x}\n")
    run = cli.run("--config", "bad.yaml", "config", "check", "--json")
    assert run.returncode == 2
    violations = json.loads(run.stderr)["error"]["violations"]
    assert [broken["field"] for broken in violations] == ["worker.counts", "redis.adr"]


def test_what_is_wrong_is_said_once(cli: CommandLine) -> None:
    (cli.directory / "bad.toml").write_text("[worker]\ncounts = 3\n")
    said = cli.run("config", "check", "bad.toml").stderr
    assert said.count("worker.counts") == 1
    assert "`fetchbox config check bad.toml`" in said


def test_a_handler_that_is_not_there_is_named(cli: CommandLine) -> None:
    (cli.directory / "own.toml").write_text('[job_types.own]\nhandler = "nowhere:Handler"\n')
    run = cli.run("config", "check", "own.toml")
    assert run.returncode == 2
    assert "job_types.own.handler" in run.stderr
    assert "PYTHONPATH" in run.stderr


def test_a_check_names_tasks_and_flows(cli: CommandLine) -> None:
    assert cli.run("config", "check").stdout == "valid; job types: default; tasks: none; flows: none\n"
    (cli.directory / "own.toml").write_text(
        '[tasks.chat]\nendpoint = "http://h/v1"\n[tasks.tool]\nhandler = "remote"\n[tasks.code]\nhandler = "no:One"\n'
    )
    run = cli.run("config", "check", "own.toml")
    assert run.returncode == 2
    assert "tasks.code.handler" in run.stderr
    good = {"FETCHBOX_TASKS_CODE_HANDLER": "remote"}
    told = json.loads(cli.run("config", "check", "own.toml", "--json", environ=good).stdout)
    assert told["tasks"] == ["chat", "code", "tool"]
    (cli.directory / "flow.toml").write_text('[flows.ask.steps.somebody]\ngate = { reason = "manual" }\n')
    assert cli.run("config", "check", "flow.toml").stdout == "valid; job types: default; tasks: none; flows: ask\n"


def test_a_secret_that_a_task_needs_is_named(cli: CommandLine) -> None:
    text = '[tasks.chat]\nendpoint = "http://h/v1"\napi_key = "${secret:MODELS}"\n'
    (cli.directory / "own.toml").write_text(text)
    run = cli.run("config", "check", "own.toml")
    assert run.returncode == 2
    assert "tasks.chat.api_key" in run.stderr
    declared = '[secrets.MODELS]\nsource = "env:MODELS_KEY"\nuses = ["task_endpoint"]\n'
    (cli.directory / "own.toml").write_text(text + declared)
    run = cli.run("config", "check", "own.toml")
    assert run.returncode == 2
    assert "secrets.MODELS.source" in run.stderr
    assert cli.run("config", "check", "own.toml", environ={"MODELS_KEY": "x"}).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "check", "missing.toml"),
        ("--config", "missing.toml", "config", "show"),
        ("serve", "--role=operator", "--config=missing.toml"),
        ("--config=missing.toml", "jobs", "list"),
    ],
)
def test_a_file_that_was_named_must_be_there(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    run = cli.run(*arguments)
    assert run.returncode == 2, run
    assert "there is no missing.toml" in run.stderr
    assert cli.run("config", "check", environ={"FETCHBOX_CONFIG": "missing.toml"}).returncode == 2


WRONG = [
    ("FETCHBOX_GATEWAY_LISTEN", "nope", "gateway.listen"),
    ("FETCHBOX_INGEST_LISTEN", ":50051", "ingest.listen"),
    ("FETCHBOX_OPERATOR_LISTEN", "0.0.0.0:1", "trusted_network"),
    ("REDIS_ADDR", "redis://localhost:6379", "redis.addr"),
    ("REDIS_ADDR", "localhost:99999", "redis.addr"),
    ("FETCHBOX_OBJECT_STORE_ENDPOINT", "localhost:9000", "object_store.endpoint"),
    ("FETCHBOX_OBJECT_STORE_BUCKET", "Bad_Bucket", "object_store.bucket"),
    ("FETCHBOX_SECURITY_OPERATOR_TOKENS", ",", "FETCHBOX_SECURITY_OPERATOR_TOKENS"),
    ("FETCHBOX_SECURITY_TENANT_TOKENS", "{a: b", "FETCHBOX_SECURITY_TENANT_TOKENS"),
    ("WORKER_COUNT", "many", "WORKER_COUNT"),
    ("OBSERVABILITY_METRICS_PORT", "70000", "observability.metrics_port"),
    ("FETCHBOX_SECURITY_TLS_CERT_FILE", "c", "security.tls"),
]


@pytest.mark.parametrize(("name", "value", "named"), WRONG)
def test_a_wrong_value_gets_a_line_and_no_traceback(cli: CommandLine, name: str, value: str, named: str) -> None:
    for arguments in (("config", "check"), ("serve", "--role=gateway"), ("up",)):
        run = cli.run(*arguments, environ={name: value})
        assert run.returncode == 2, run
        assert named in run.stderr
        assert "Traceback" not in run.stderr


def test_the_lake_without_an_object_store_says_so_and_asks_nobody(cli: CommandLine) -> None:
    """No metadata address is asked: it would not answer within the time of a command."""
    for command in (("lake", "status"), ("lake", "retain", "--dry-run"), ("sql", "select 1")):
        run = cli.run(*command)
        assert run.returncode == 2, run
        assert "no object store is configured" in run.stderr


def test_up_says_where_it_cannot_keep_its_data(cli: CommandLine) -> None:
    (cli.directory / "file").write_text("")
    for data in ("file", "file/below", "/proc/fetchbox", "/dev/null"):
        run = cli.run("up", "--data", data)
        assert run.returncode == 2, run
        assert data in run.stderr
        assert "Traceback" not in run.stderr


@pytest.mark.req("R002-cli.06")
def test_a_check_names_a_variable_that_overrides_nothing(cli: CommandLine) -> None:
    """A bare name where the key has a prefix, and the other way round."""
    environ = {"FETCHBOX_PRODUCER_SCAN_DIR": "/in", "WORKER_FILE_ROOTS": "/in", "FETCHBOX_WORKER_INGEST": "there:1"}
    environ |= {"FETCHBOX_GATEWAY_LISTNE": "h:1", "FETCHBOX_SECRET_X": "x", "FETCHBOX_XYZZY_": "x"}
    environ |= {"FETCHBOX_PORT": "tcp://10.0.0.1:80", "FETCHBOX_INGEST_SERVICE_HOST": "10.0.0.1"}  # Kubernetes
    run = cli.run("config", "check", environ=environ)
    assert run.returncode == 0, run
    assert set(run.stderr.splitlines()) == {
        "FETCHBOX_PRODUCER_SCAN_DIR overrides nothing: the variable is PRODUCER_SCAN_DIR",
        "WORKER_FILE_ROOTS overrides nothing: the variable is FETCHBOX_WORKER_FILE_ROOTS",
        "FETCHBOX_GATEWAY_LISTNE is read by nothing; did you mean FETCHBOX_GATEWAY_LISTEN?",
        'FETCHBOX_SECRET_X is read by nothing: [secrets.NAME] with source = "env:FETCHBOX_SECRET_X" declares it',
        "FETCHBOX_XYZZY_ is read by nothing",
    }


def test_serve_ends_when_redis_is_not_there(cli: CommandLine) -> None:
    run = cli.spawn(
        "serve", "--role=operator", environ={"REDIS_ADDR": "127.0.0.1:9", "OBSERVABILITY_METRICS_PORT": "0"}
    )
    assert run.returncode == 4, run
    assert "127.0.0.1:9" in run.stderr
    assert "Traceback" not in run.stderr


SHOWN = (
    "acme",
    "proxy:3128",
    "image/*",
    "AK",
    "max_parallel_downloads",
    "models.internal",
    "0.25",
    "${secret:MODELS}",
    "parcels",
    "${secret:CARDS}",
    "Is ${input.order} paid?",
)


def test_config_show_keeps_secrets(cli: CommandLine) -> None:
    (cli.directory / "secret.toml").write_text(
        """
[redis]
password = "s3cret-1"
[object_store]
access_key_id = "AK"
secret_access_key = "s3cret-2"
[security]
operator_tokens = ["s3cret-3"]
tenant_tokens = { "s3cret-4" = "acme" }
[proxies.eu]
urls = ["http://user:s3cret-5@proxy:3128"]
[job_types.gallery]
default_headers = { "Authorization" = "Bearer s3cret-6", "Accept" = "image/*" }
[job_types.gallery.options]
max_parallel_downloads = 8
[tasks.chat]
endpoint = "https://user:s3cret-7@models.internal/v1"
api_key = "s3cret-8"
headers = { "api-key" = "s3cret-9" }
options = { temperature = 0.25 }
[tasks.embed]
endpoint = "https://models.internal/v1"
api_key = "${secret:MODELS}"
[worker]
ingest_token = "s3cret-10"
[flow_engine]
webhook_secrets = { parcels = "s3cret-11", cards = "${secret:CARDS}" }
[flows.order.steps.ask]
task = "chat"
with = { prompt = "Is ${input.order} paid?" }
[secrets.MODELS]
source = "env:MODELS_KEY"
uses = ["task_endpoint"]
[secrets.CARDS]
source = "file:/run/secrets/cards"
uses = ["webhook"]
"""
    )
    for as_json in ((), ("--json",)):
        run = cli.run("config", "show", "secret.toml", *as_json)
        assert run.returncode == 0, run.stderr
        assert "s3cret" not in run.stdout
        assert all(kept in run.stdout for kept in SHOWN), run.stdout


def test_publish_task_shows_the_bytes_that_it_would_send(cli: CommandLine) -> None:
    run = cli.run(
        *(
            "publish-task",
            "--dry-run",
            "--json",
            "--job-id",
            "a",
            "--url",
            "http://x/",
            "--header",
            "Referer: http://y/",
        ),
        *(
            "--resources-total",
            "3",
            "--resource-index",
            "2",
            "--resource-id",
            "r",
            "--tenant",
            "t",
            "--checksum",
            "md5:0",
        ),
    )
    shown = json.loads(run.stdout)
    assert shown["stream"] == "fetchbox.jobs.tasks:3"
    task = DownloadTask.FromString(bytes.fromhex(shown["payload"]))
    assert (task.job_id, task.url, task.resources_total, task.resource_index) == ("a", "http://x/", 3, 2)
    assert (task.headers[0].name, task.headers[0].value) == ("referer", "http://y/")
    assert (task.resource_id, task.tenant, task.attributes.checksum_hint) == ("r", "t", "md5:0")


@pytest.mark.parametrize("text", ['[{"job_id": "a"}, {"job_id": "b"}]', '{"job_id": "a"}\n\n{"job_id": "b"}\n'])
def test_publish_task_reads_many_tasks(cli: CommandLine, text: str) -> None:
    run = cli.run("publish-task", "-", "--dry-run", "--json", stdin=text)
    assert [json.loads(line)["job"] for line in run.stdout.splitlines()] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "{", '{"jobid": 1}', "[1]", "\x00", '{"job_id": 7}'])
def test_publish_task_refuses_what_is_no_task(cli: CommandLine, text: str) -> None:
    assert cli.run("publish-task", "-", stdin=text, environ={"REDIS_ADDR": "127.0.0.1:9"}).returncode == 2


def test_an_argument_that_is_no_text_is_wrong_usage(cli: CommandLine) -> None:
    run = cli.spawn("publish-task", "--dry-run", "--job-id", "d\udce9", "--url", "http://h/")
    assert run.returncode == 2
    assert run.stderr == "error: an argument is no text in UTF-8: 'd\\udce9'\n"


@pytest.mark.parametrize("option", ["--resources-total", "--resource-index"])
def test_a_number_that_no_task_can_hold_is_wrong_usage(cli: CommandLine, option: str) -> None:
    assert cli.run("publish-task", "--dry-run", "--url", "http://h/", option, str(2**32)).returncode == 2
    assert cli.run("publish-task", "--dry-run", "--url", "http://h/", option, str(2**32 - 1)).returncode == 0


@pytest.mark.parametrize(
    ("target", "code", "told"),
    [("/dev/full", 1, "error: cannot write: No space left on device\n"), ("&-", 0, ""), ("/dev/null 2>&-", 0, "")],
)
def test_what_cannot_be_written_is_told_without_a_trace(cli: CommandLine, target: str, code: int, told: str) -> None:
    command = f"{shlex.join(cli.argv('config', 'show', '--json'))} >{target}"
    run = subprocess.run(
        ["/bin/sh", "-c", command], cwd=cli.directory, env=cli.environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (code, told)


def test_a_letter_that_stdout_does_not_know_is_no_error(cli: CommandLine) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    run = cli.spawn("publish-task", "--dry-run", "--job-id", "é", "--url", "http://h/", environ=ascii_only)
    assert (run.returncode, run.stdout.splitlines()[0]) == (0, "job\t?"), run


def test_a_reader_that_goes_away_is_no_error(cli: CommandLine) -> None:
    """The writer of a broken pipe ends quietly, as others do."""
    lines = "\n".join(json.dumps({"job_id": f"job-{n}"}) for n in range(5000))
    (cli.directory / "tasks").write_text(lines)
    with subprocess.Popen(
        cli.argv("publish-task", "tasks", "--dry-run", "--json"),
        cwd=cli.directory,
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def test_colours_in_a_terminal_and_plain_text_in_a_pipe(cli: CommandLine) -> None:
    (cli.directory / "bad.toml").write_text("[worker]\ncount = 0\n")
    assert "\x1b[" in cli.in_terminal("config", "check", "bad.toml")
    assert "\x1b[" not in cli.run("config", "check", "bad.toml").stderr
    cli.environ["NO_COLOR"] = "1"
    assert "\x1b[1;31m" not in cli.in_terminal("config", "check", "bad.toml")


@pytest.mark.parametrize(
    "command",
    [
        ("jobs", "list"),
        ("breakers", "list"),
        ("streams", "list"),
        ("streams", "provision"),
        ("publish-task", "{}"),
        ("flows", "list"),
        ("files", "queues"),
        ("health",),
        ("dlq", "list"),
    ],
    ids=" ".join,
)
def test_every_command_finds_what_runs_on_the_data_that_is_named(
    cli: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """FETCHBOX_DATA leads to it, and where nothing runs there the problem says so."""
    state = tmp_path / "elsewhere" / "running.json"
    state.parent.mkdir()
    own = {
        "FETCHBOX_GATEWAY_OPERATOR": "127.0.0.1:9",
        "FETCHBOX_GATEWAY_FLOW": "127.0.0.1:9",
        "REDIS_ADDR": "127.0.0.1:9",
    }
    own |= {"FETCHBOX_GATEWAY_INGEST": "127.0.0.1:9", "REDIS_START_PATIENCE": "0s"}
    state.write_text(json.dumps({"pid": os.getpid(), "environ": own}))
    task = tmp_path / "task.json"
    task.write_text('{"job_id": "j", "job_type": "default", "resource_id": "r", "url": "http://a.example/"}')
    argv = [str(task) if part == "{}" else part for part in command]
    named = {"FETCHBOX_DATA": str(state.parent)}
    assert "127.0.0.1:9 " in cli.run(*argv, environ=named).stderr
    state.unlink()
    missing = cli.run(*argv, environ=named | own).stderr
    assert "FETCHBOX_DATA" in missing
    assert str(state.parent) in missing.replace("\n", "")


def test_what_runs_in_this_directory_is_found(cli: CommandLine, tmp_path: Path) -> None:
    state = tmp_path / ".fetchbox" / "running.json"
    state.parent.mkdir()
    state.write_text(json.dumps({"pid": os.getpid(), "environ": {"FETCHBOX_GATEWAY_OPERATOR": "127.0.0.1:10"}}))
    assert "127.0.0.1:10 " in cli.run("jobs", "list").stderr
    assert "127.0.0.1:9 " in cli.run("jobs", "list", environ=NO_SERVER).stderr, "the environment wins"
    state.write_text(json.dumps({"pid": 2**22 + 1, "environ": {"FETCHBOX_GATEWAY_OPERATOR": "127.0.0.1:10"}}))
    assert "127.0.0.1:10 " not in cli.run("jobs", "list").stderr, "it has ended"
    state.write_text("{")
    run = cli.run("jobs", "list", environ=NO_SERVER)
    assert "127.0.0.1:10 " not in run.stderr
    assert "Traceback" not in run.stderr
