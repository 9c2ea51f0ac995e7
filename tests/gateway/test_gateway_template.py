"""The grammar of path templates (http.proto)."""

import pytest

from gateway.template import PathTemplateError, parse


@pytest.mark.parametrize(
    ("text", "segments", "fields", "verb"),
    [
        ("/", (), [], ""),
        ("/v1/jobs", ("v1", "jobs"), [], ""),
        ("/v1/jobs/{name}", ("v1", "jobs", "*"), ["name"], ""),
        ("/v1/{name=jobs/*/logs/**}", ("v1", "jobs", "*", "logs", "**"), ["name"], ""),
        ("/v1/{a.b.c=*}:run", ("v1", "*"), ["a.b.c"], "run"),
        ("/v1/{name=projects/*/x/**}:undelete", ("v1", "projects", "*", "x", "**"), ["name"], "undelete"),
        ("/{x=a/*}/b/{y=*}/c", ("a", "*", "b", "*", "c"), ["x", "y"], ""),
        ("/operators/jobs:export", ("operators", "jobs"), [], "export"),
    ],
)
def test_what_the_grammar_allows(text: str, segments: tuple[str, ...], fields: list[str], verb: str) -> None:
    template = parse(text)
    assert (template.segments, template.verb) == (segments, verb)
    assert [".".join(variable.field_path) for variable in template.variables] == fields


@pytest.mark.parametrize(
    "text",
    [
        "", "v1", "/v1/", "//", "/v1/{}", "/v1/{name", "/v1/name}", "/v1/pre{name}", "/v1/{name}suf", "/v1/{name}:",
        "/v1/{x=**}/tail", "/**/a", "/v1/{field-name}", "/v1/{x=}", "/v1/{x={y}}", "/v1/{x}/{x}", "/v1/***",
        "/v1/a b", "/v1/a:b/c", "/v1?x", "/v1/{1x}", "/v1/{x.}", "/v1/%zz",
    ],
)  # fmt: skip
def test_what_it_does_not(text: str) -> None:
    with pytest.raises(PathTemplateError):
        parse(text)


def test_a_variable_knows_its_segments() -> None:
    name, rest = parse("/v1/{name=jobs/*}/x/{rest=**}").variables
    assert (name.start, name.end, name.multi) == (1, 3, True)
    assert (rest.start, rest.end, rest.multi) == (4, None, True)
    assert not parse("/v1/{name}").variables[0].multi
