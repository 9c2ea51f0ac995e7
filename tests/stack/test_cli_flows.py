"""Flows on the command line, with a whole platform: runs and their gates, the drawing, restarts, errors."""

import json
import re
import signal
import subprocess
import time
from typing import Any

import pytest

from cli.local import LocalPlatform
from cli.serve import Role
from tests.stack.conftest import CommandLine, Ended
from tests.stack.test_cli_tasks import documents, running
from tests.stack.test_examples import EXAMPLES

START = ("flows", "start", "ship", "--input")


def started(line: CommandLine, value: dict[str, Any], *more: str) -> tuple[str, str]:
    """A new run of `ship`: its id, and the secret of its gate."""
    run = line.run(*START, json.dumps(value), *more, "--json")
    assert run.returncode == 0, run
    answer = json.loads(run.stdout)
    assert [told["stepKey"] for told in answer["secrets"]] == ["pack"]
    return answer["flow"]["flowId"], answer["secrets"][0]["secret"]


def shipped(line: CommandLine, parcel: str, attempts: int = 1) -> str:
    """A run that goes on to its end by itself: everything that it waits for has happened already."""
    run, secret = started(line, {"parcel": parcel, "attempts": attempts})
    assert line.run("flows", "publish", "parcel.sent", "--key", parcel, "--data", '{"by": "post"}').returncode == 0
    triggered = line.run("flows", "trigger", run, "pack", "--secret", secret, "--payload", '"Ada"', "--json")
    assert json.loads(triggered.stdout)["flowId"] == run, triggered
    return run


def shown(line: CommandLine, run: str) -> dict[str, Any]:
    """A run as programs see it."""
    return dict(json.loads(line.run("flows", "get", run, "--json").stdout))


def until_placed(line: CommandLine, run: str) -> None:
    """Waits until the first gate of a run is placed."""
    deadline = time.monotonic() + 60
    while shown(line, run).get("waitStep") != "pack":
        assert time.monotonic() < deadline, shown(line, run)
        time.sleep(0.05)


def lines(run: Ended) -> list[list[str]]:
    """The cells of a table in a pipe."""
    return [line.split("\t") for line in run.stdout.splitlines()]


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_run_in_a_pipe_is_a_line_an_event(connected: CommandLine) -> None:
    run = shipped(connected, "p-1", attempts=2)
    watched = connected.run("flows", "watch", run)
    assert (watched.returncode, watched.stderr) == (0, ""), watched
    told = [line.split(maxsplit=1)[1] for line in watched.stdout.splitlines()]
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3}  ", line) for line in watched.stdout.splitlines())
    kinds = [line.split()[0] for line in told]
    assert (kinds[0], kinds[-1], kinds.count("runner.log")) == ("flow.start", "flow.complete", 2)
    pack = [kind for kind, line in zip(kinds, told, strict=True) if "pack" in line.split()[1:2]]
    assert [kind for kind in pack if kind != "runner.log"] == [
        "step.await.scheduled",
        "step.await.triggered",
        "step.scheduled",
        "step.attempt.started",
        "step.attempt.failed",
        "step.retry.scheduled",
        "step.attempt.started",
        "step.attempt.completed",
        "step.completed",
    ]
    text = " ".join(watched.stdout.split())
    assert 'pack by manual: "Ada"' in text
    assert ": HANDLER_ERROR: not yet" in text
    assert "send waits for event parcel.sent/p-1 until " in text
    assert 'flow.complete {"by": "Ada", "attempt": 2}' in text
    assert "\x1b" not in watched.stdout, "what was logged does not reach the terminal as it is"


@pytest.mark.req("R003-2.4.05")
def test_for_programs_each_line_is_a_frame(connected: CommandLine) -> None:
    run = shipped(connected, "p-2")
    frames = documents(connected.run("flows", "watch", run, "--json"))
    assert all(frame.keys() == {"v", "stream", "event", "record"} for frame in frames)
    assert {(frame["v"], frame["stream"]) for frame in frames} == {(1, f"nq:flow:{run}")}
    ids = [tuple(map(int, frame["record"]["id"].split("-"))) for frame in frames]
    assert ids == sorted(set(ids))
    assert frames[0]["record"]["data"]["input"] == {"parcel": "p-2", "attempts": 1}
    assert frames[-1]["record"]["data"]["result"] == {"by": "Ada", "attempt": 1}
    assert "subject" not in frames[0]["record"] or frames[0]["record"]["subject"]


def test_in_a_terminal_the_run_is_drawn(connected: CommandLine) -> None:
    run = shipped(connected, "p-3", attempts=2)
    assert connected.run("flows", "watch", run).returncode == 0
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", connected.in_terminal("flows", "watch", run))
    drawn = [line.rstrip() for line in seen.splitlines()]
    assert json.loads(drawn[-1]) == {"by": "Ada", "attempt": 2}
    assert re.fullmatch(r"█ attempt   ▓ failed attempt   ░ gate(   . [a-z]+)*", drawn[-2])
    head, pack, send = drawn[-5:-2]
    assert head.startswith(f"ship {run}  completed  ")
    assert re.fullmatch(r"pack +completed +░+ *─*▓+╌*█+ +[\d.]+ s", pack), pack
    assert re.fullmatch(r"send +completed +░+ +[\d.]+ s", send), send
    assert "warn  trying attempt=1" in seen, "log lines are above it"


def test_secrets_are_told_once_and_never_on_stdout(connected: CommandLine) -> None:
    args = (*START, '{"parcel": "p-4", "attempts": 1}', "--key", "ship-4", "--tag", "blue")
    run = connected.run(*args)
    assert run.returncode == 0, run
    facts = dict(lines(run))
    (secret,) = re.findall(rf"pack  ({facts['run']}\.pack\.\S+)", run.stderr)
    assert secret not in run.stdout
    assert f"fetchbox flows trigger {facts['run']} pack --secret" in run.stderr
    again = connected.run(*args)
    assert (dict(lines(again))["run"], secret in again.stderr) == (facts["run"], False)
    hidden = {"FETCHBOX_GATE_SECRET": secret}
    opened = connected.run("flows", "trigger", facts["run"], "pack", "--payload", "[1]", environ=hidden)
    assert dict(lines(opened))["step"] == "pack", opened
    everything = connected.run("flows", "get", facts["run"], "--json").stdout
    assert secret.rpartition(".")[2] not in everything
    assert json.loads(everything)["tags"] == ["blue"]
    connected.run("flows", "cancel", facts["run"])


def test_whoever_sends_webhooks_is_told_whose_gates_are_meant(connected: CommandLine) -> None:
    run = connected.run("flows", "start", "parcel", "--tenant", "acme")
    assert "/v1/hooks/CHANNEL/KEY?tenant=acme" in run.stderr, run
    connected.run("flows", "cancel", dict(lines(run))["run"])


def test_with_watch_a_start_goes_on_to_the_end(connected: CommandLine) -> None:
    with running(connected, *START, '{"parcel": "p-5", "attempts": 1}', "--watch", "--json") as process:
        answer = json.loads(read_line(process))
        run = answer["flow"]["flowId"]
        assert connected.run("flows", "publish", "parcel.sent", "--key", "p-5").returncode == 0
        secret = answer["secrets"][0]["secret"]
        connected.run("flows", "trigger", run, "pack", f"--secret={secret}")
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert json.loads(rest.splitlines()[-1])["event"] == "flow.complete"
    assert secret not in rest


@pytest.mark.req("R003-2.4.04")
def test_a_watch_survives_a_restart_of_the_service(connected: CommandLine, platform: LocalPlatform) -> None:
    run, _ = started(connected, {"parcel": "p-6", "attempts": 1})
    until_placed(connected, run)
    with running(connected, "flows", "watch", run, "--json") as process:
        before = [json.loads(read_line(process)) for _ in range(2)]
        platform.roles[Role.INGEST].kill9()
        assert any("ingest ended with code -9" in event for event in platform.mend())
        deadline = time.monotonic() + 60
        while connected.run("flows", "trigger", run, "pack").returncode != 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        connected.run("flows", "publish", "parcel.sent", "--key", "p-6")
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    seen = [frame["record"]["id"] for frame in [*before, *map(json.loads, rest.splitlines())]]
    assert seen == [frame["record"]["id"] for frame in documents(connected.run("flows", "watch", run, "--json"))]


def test_ctrl_c_leaves_the_run_alone_and_says_how_to_return(connected: CommandLine) -> None:
    run, _ = started(connected, {"parcel": "p-7", "attempts": 1})
    with running(connected, "flows", "watch", run) as process:
        assert "flow.start" in read_line(process)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert f"fetchbox flows watch {run}" in said
    assert f"fetchbox flows cancel {run}" in said
    assert shown(connected, run)["status"] == "running"
    connected.run("flows", "cancel", run)


def test_a_run_that_fails_ends_with_1_and_says_where_to_look(connected: CommandLine) -> None:
    run, _ = started(connected, {"broken": True, "attempts": 1})
    assert connected.run("flows", "trigger", run, "pack").returncode == 0
    watched = connected.run("flows", "watch", run)
    assert watched.returncode == 1
    assert "error: the step pack failed: VALIDATION_PAYLOAD: it is broken" in watched.stderr
    assert f"fetchbox flows logs {run} pack" in watched.stderr
    logs = connected.run("flows", "logs", run, "pack")
    assert "runner.log" in logs.stdout
    assert "trying attempt=1" in logs.stdout
    (event,) = documents(connected.run("flows", "logs", run, "pack", "--attempt", "1", "--json"))
    assert event["data"] == {"level": "warn", "msg": "trying", "meta": {"attempt": 1, "escape": "\x1b[31m"}}
    assert connected.run("flows", "logs", run, "pack", "--attempt", "2").stdout == ""
    assert connected.run("flows", "watch", run, "--json").returncode == 1
    facts = connected.run("flows", "get", run)
    assert "error\tVALIDATION_PAYLOAD: it is broken" in facts.stdout
    assert any(row[:3] == ["pack", "failed", "1"] for row in lines(facts))


def test_the_step_that_is_at_fault_is_named_and_none_that_the_end_cut_short(connected: CommandLine) -> None:
    watched = connected.run("flows", "start", "branches", "--input", '{"resources": 1}', "--watch")
    assert watched.returncode == 1
    assert "error: the step fetch failed: VALIDATION_MANIFEST" in watched.stderr, watched
    assert "fetchbox flows logs" not in watched.stderr, "no job was made, so there is nowhere to look"
    blocked = {"resources": [{"id": "one", "url": "http://10.255.255.1/"}]}
    watched = connected.run("flows", "start", "branches", "--input", json.dumps(blocked), "--watch")
    assert "error: the step fetch failed: VALIDATION_BLOCKED_ADDRESS" in watched.stderr, watched
    (job,) = re.findall(r"fetchbox jobs get (\S+)` shows", watched.stderr)
    assert "one\tVALIDATION_BLOCKED_ADDRESS" in connected.run("jobs", "get", job).stdout


def test_a_cancelled_gate_and_a_cancelled_run(connected: CommandLine) -> None:
    first, second = (started(connected, {"attempts": 1}, "--id", f"to-cancel-{n}")[0] for n in range(2))
    until_placed(connected, first)
    cancelled = connected.run("flows", "cancel-gate", first, "pack")
    assert dict(lines(cancelled))["state"] == "cancelled"
    assert "SYSTEM_GATE_CANCELED" in connected.run("flows", "watch", first).stderr
    gone = connected.run("flows", "trigger", first, "pack")
    assert (gone.returncode, "GONE" in gone.stderr, "fetchbox flows get" in gone.stderr) == (3, True, True), gone
    assert connected.run("flows", "cancel", second, "--reason", "a mistake").returncode == 0
    assert shown(connected, second)["status"] == "cancelled"
    watched = connected.run("flows", "watch", second)
    assert (watched.returncode, "the run was cancelled" in watched.stderr) == (1, True)
    assert "a mistake" in watched.stdout
    listed = connected.run("flows", "list", "--flow", "ship", "--status", "cancelled")
    assert second in [row[0] for row in lines(listed)]
    assert first not in [row[0] for row in lines(listed)]


def test_runs_are_listed_page_by_page(connected: CommandLine) -> None:
    ids = [f"nap-{n}" for n in range(3)]
    for run in ids:
        assert connected.run("flows", "start", "nap", "--id", run).returncode == 0
    first = json.loads(connected.run("flows", "list", "--flow", "nap", "--limit", "2", "--json").stdout)
    page = first["nextPageToken"]
    second = json.loads(connected.run("flows", "list", "--flow", "nap", "--page", page, "--json").stdout)
    assert [run["flowId"] for run in [*first["flows"], *second["flows"]]] == ids[::-1]
    assert f"--page {page}" in connected.run("flows", "list", "--flow", "nap", "--limit", "2").stderr
    for run in ids:
        connected.run("flows", "cancel", run)


@pytest.mark.parametrize(
    ("call", "reason", "hint"),
    [
        (("start", "nowhere"), "NOT_FOUND", "flows definitions"),
        (("get", "nobody"), "NOT_FOUND", "fetchbox flows list"),
        (("watch", "nobody"), "NOT_FOUND", "fetchbox flows list"),
        (("logs", "nobody", "pack"), "NOT_FOUND", "fetchbox flows list"),
        (("cancel", "nobody"), "NOT_FOUND", "fetchbox flows list"),
        (("trigger", "taken", "pack", "--secret", "guessed"), "FORBIDDEN", "--secret"),
        (("trigger", "taken", "nothing"), "NOT_FOUND", "fetchbox flows get"),
        (("start", "nap", "--id", "taken"), "IDEMPOTENCY_CONFLICT", "another --id"),
        (("publish", "step.completed"), "FORBIDDEN", "a kind of your own"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_what_is_refused_says_what_to_do(connected: CommandLine, call: tuple[str, ...], reason: str, hint: str) -> None:
    assert connected.run("flows", "start", "ship", "--id", "taken").returncode == 0
    run = connected.run("flows", *call, "--json")
    error = json.loads(run.stderr)["error"]
    assert (run.returncode, run.stdout, error["reason"]) == (3, "", reason), run
    assert hint in error["hint"]


def test_the_flows_of_a_configuration_are_shown_without_a_server(cli: CommandLine) -> None:
    path = str(EXAMPLES / "flows/fetchbox.toml")
    shown = cli.run("flows", "definitions", "--config", path)
    assert lines(shown)[1:] == [
        ["catalogue", "fetch", "", "job_type default", ""],
        ["catalogue", "approve", "fetch", "waits", "manual"],
        ["catalogue", "notify", "fetch", "task tool", ""],
        ["catalogue", "catalogue", "notify, approve", "handler catalogue:Catalogue", ""],
    ]
    steps = json.loads(cli.run("--config", path, "flows", "definitions", "--json").stdout)["catalogue"]["steps"]
    assert steps["approve"]["gate"]["deadline"] == "172800s"
    assert steps["catalogue"]["with"]["approved_by"] == "${gates.approve.payload.by}"
