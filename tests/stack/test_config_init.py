"""`fetchbox config init`: a file for each role that is valid as it is, and with its defaults put to use."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from cli.config_roles import READ
from cli.serve import Role
from kernel.config.loading import defaults, load
from tests.stack.conftest import CommandLine

PROTO = (Path(__file__).parents[2] / "proto/fetchbox/config/v1/config.proto").read_text()


@pytest.mark.parametrize("role", sorted(Role))
def test_the_file_of_a_role_passes_the_check(cli: CommandLine, role: Role) -> None:
    assert cli.run("config", "init", "--role", role, "--out", "own.toml").returncode == 0
    checked = cli.run("config", "check", "own.toml")
    assert checked.returncode == 0, checked
    assert load(cli.directory / "own.toml", {}) == defaults()


@pytest.mark.parametrize("role", sorted(READ))
def test_it_holds_what_the_role_reads_and_nothing_else(cli: CommandLine, role: Role) -> None:
    text = cli.run("config", "init", "--role", role).stdout
    assert {name.partition(".")[0] for name in re.findall(r"^#?\[([\w.]+)\]", text, re.MULTILINE)} == {
        key.partition(".")[0] for key in READ[role]
    }
    for key in (key for key in READ[role] if "." in key and key.partition(".")[0] not in READ[role]):
        section, name = key.split(".")
        assert re.search(rf"\[{section}\]\n((#.*\n)*)#{name} = ", text), key


def test_each_default_is_the_one_that_holds(cli: CommandLine) -> None:
    """Every key of a table that is there, but for those without a default, is put to use."""
    text = cli.run("config", "init").stdout
    live = re.sub(r"^#\[.*(\n.+)*", "", text, flags=re.MULTILINE)
    used = re.sub(r"^#(?=\w+ = (?!\"\"$|\[\]$|\{\}$))", "", live, flags=re.MULTILINE)
    (cli.directory / "used.toml").write_text(used)
    table = tomllib.loads(used)
    assert len(table["worker"]) > 20
    assert load(cli.directory / "used.toml", {}) == defaults()


def test_every_key_of_the_proto_stands_there_with_its_comment(cli: CommandLine) -> None:
    text = cli.run("config", "init").stdout
    prose = " ".join(re.sub(r"^# ?", "", text, flags=re.MULTILINE).split())
    fields = re.findall(r"((?:^  //.*\n)+)  (?:optional |repeated )?[\w.<>, ]+ (\w+) = \d+", PROTO, re.MULTILINE)
    assert len(fields) > 200
    for comment, name in fields:
        said = " ".join(re.sub(r"^  // ?", "", comment, flags=re.MULTILINE).split())
        assert said in prose, name
        assert re.search(rf"^#?(\[(\w+\.)*{name}(\.NAME)?\]|{name} = )", text, re.MULTILINE), name


def test_several_roles_share_one_file(cli: CommandLine) -> None:
    text = cli.run("config", "init", "--role", "gateway", "--role", "reaper").stdout
    assert text.count("\n[gateway]\n") == text.count("\n[reaper]\n") == text.count("\n[security]\n") == 1


def test_a_file_that_exists_is_left_as_it_is(cli: CommandLine) -> None:
    (cli.directory / "own.toml").write_text("mine")
    run = cli.run("config", "init", "--out", "own.toml")
    assert run.returncode == 2
    assert "own.toml exists" in run.stderr
    assert (cli.directory / "own.toml").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_named(cli: CommandLine) -> None:
    run = cli.run("config", "init", "--out", "no/such/folder.toml")
    assert run.returncode == 2
    assert "no/such/folder.toml cannot be written: No such file" in run.stderr


def test_in_json_the_text_is_a_member(cli: CommandLine) -> None:
    found = json.loads(cli.run("config", "init", "--role", "gateway", "--json").stdout)
    assert found["roles"] == ["gateway"]
    assert set(tomllib.loads(found["text"])) == {"gateway", "observability", "security"}
