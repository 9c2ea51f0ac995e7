"""The compiled checks and the rules of the proto agree; the reader of JSON is that of the standard, only stricter."""

import json
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource
from ingest_svc.canonical import canonical
from ingest_svc.manifest import Draft, read_members, read_message
from ingest_svc.plain import plain_resources
from ingest_svc.rules import check, compiled, url_fault
from ingest_svc.strict_json import JsonError, members
from kernel.request_headers import FORBIDDEN_HEADERS
from kernel.validation import violations
from tests.examples import most

names = st.text(alphabet="aAbB-", min_size=1, max_size=3) | st.sampled_from(["Host", "TE", "Referer"])
words = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
urls = st.one_of(
    words,
    st.builds("{}{}".format, st.sampled_from(["http://", "HTTPS://", "hTTp://", "ftp://", "http:/", "//"]), words),
    st.from_regex(r"https?://[a-z0-9.@:\[\]\\ -]{0,12}(/[ -~]{0,5})?", fullmatch=True),
)
resources = st.builds(
    Resource,
    id=st.text(alphabet="ab", max_size=2),
    url=urls,
    headers=st.dictionaries(names, words, max_size=4),
    tags=st.dictionaries(words, words, max_size=3),
)
manifests = st.builds(
    Manifest, manifest_version=st.sampled_from(["v1", "v1", "v2"]), resources=st.lists(resources, max_size=5)
)
free = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=10,
)


def read_document(data: bytes) -> Draft:
    return read_members(members(data, "document"))


def as_json(manifest: Manifest) -> bytes:
    return json.dumps(
        {
            "manifest_version": manifest.manifest_version,
            "resources": [
                {"id": r.id, "url": r.url, "headers": dict(r.headers), "tags": dict(r.tags)} for r in manifest.resources
            ],
        }
    ).encode()


@given(manifests)
@settings(deadline=None)
def test_document_breaks_the_rules_that_its_message_breaks(manifest: Manifest) -> None:
    document = read_document(as_json(manifest))

    assert document.faults == []
    assert document.manifest == manifest
    assert set(check(document, 1000)) == set(check(read_message(manifest), 1000))


@given(manifests)
@settings(deadline=None)
def test_every_violation_of_the_proto_is_told(manifest: Manifest) -> None:
    told = check(read_document(as_json(manifest)), 1000)

    assert {(v.field, v.rule) for v in violations(manifest)} <= {(v.field, v.rule) for v in told}


good_words = st.text(alphabet="ab ~", max_size=3)
odd = st.sampled_from([None, 1, True, [], {}, "", "\u00e9", "\n", "x" * 1025, "x" * 129])
good_values = st.fixed_dictionaries(
    {
        "id": st.text(alphabet="ab", min_size=1, max_size=2),
        "url": st.sampled_from(["http://h/", "https://h.de:8/a?b#c"]),
    },
    optional={
        "headers": st.dictionaries(names, good_words, max_size=3),
        "tags": st.dictionaries(good_words, good_words, max_size=3),
    },
)


@st.composite
def nearly_good(draw: st.DrawFn) -> dict[str, Any]:
    """A document that is good, or has one odd value in one place."""
    values: list[Any] = draw(st.lists(good_values, min_size=1, max_size=4, unique_by=lambda value: value["id"]))
    document: dict[str, Any] = {"manifest_version": "v1", "metadata": {"a": 1}, "resources": values}
    spot = draw(st.sampled_from(["", "", "id", "url", "headers", "tags", "key", "value", "resource", "document"]))
    value, entry = draw(odd), values[draw(st.integers(0, len(values) - 1))]
    if spot in {"id", "url", "headers", "tags"}:
        entry[spot] = value
    elif spot == "key":
        entry.setdefault("headers", {})[str(value)] = "x"
    elif spot == "value":
        entry.setdefault(draw(st.sampled_from(["headers", "tags"])), {})["k"] = value
    elif spot == "resource":
        values.append(value)
    elif spot == "document":
        document[draw(st.sampled_from(["manifest_version", "metadata", "attributes", "more", "resources"]))] = value
    return document


@given(nearly_good())
@settings(deadline=None, max_examples=most(500))
def test_quick_way_takes_only_what_the_rules_take_and_reads_it_alike(document: dict[str, Any]) -> None:
    found = members(json.dumps(document).encode(), "document")
    draft = read_members(found)

    quick = plain_resources(found, 1000)

    if quick is not None:
        assert check(draft, 1000) == []
        assert [(r.id, r.url, r.headers, r.tags) for r in quick] == [
            (r.id, r.url, dict(r.headers), dict(r.tags)) for r in draft.manifest.resources
        ]


def test_quick_way_is_taken_by_common_manifests() -> None:
    entries = [
        {"id": f"resource_{n}", "url": f"https://cdn.example.com/{n}.jpg?a=b", "headers": {"User-Agent": "Crawler/1.0"}}
        for n in range(1000)
    ]
    found = members(json.dumps({"manifest_version": "v1", "resources": entries}).encode(), "document")

    assert plain_resources(found, 1000) is not None
    assert plain_resources(found, 999) is None


@given(urls)
def test_url_check_and_the_rule_of_the_proto_never_speak_of_the_same_url(url: str) -> None:
    of_proto = [v.rule for v in violations(Resource(id="a", url=url)) if v.field == "url"]
    fault = url_fault(url)

    if "string.pattern" in of_proto:
        # Another scheme: the proto says so, and only control characters may be told beside it.
        assert fault is None or fault[1] == "url.control"
    elif fault is None:
        assert of_proto == []
        with suppress(UnicodeError, ValueError) if not url.isascii() else nullcontext():
            assert urlsplit(url).hostname
            assert urlsplit(url).port != 0


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=2), max_size=8))
def test_ids_are_unique_as_a_quadratic_check_says(ids: list[str]) -> None:
    entries = [Resource(id=item, url="http://h/") for item in ids]

    told = {v.field for v in compiled(entries)}

    assert told == {f"resources[{i}].id" for i, item in enumerate(ids) if item in ids[:i]}


@given(st.dictionaries(names, words, max_size=5))
def test_header_names_are_unique_and_allowed_as_a_plain_check_says(headers: Mapping[str, str]) -> None:
    rules = [v.rule for v in compiled([Resource(id="a", url="http://h/", headers=headers)])]

    assert rules.count("headers.unique") == len(headers) - len({name.lower() for name in headers})
    assert rules.count("headers.forbidden") == sum(name.lower() in FORBIDDEN_HEADERS for name in headers)


@given(st.dictionaries(words, free, max_size=3), st.dictionaries(words, free, max_size=3), st.booleans())
@settings(deadline=None)
def test_free_json_is_kept_as_it_was_written(metadata: Any, attributes: Any, ascii_only: bool) -> None:
    texts = [json.dumps(value, ensure_ascii=ascii_only, indent=1) for value in (metadata, attributes)]
    document = f'{{"manifest_version":"v1","metadata":{texts[0]} , "attributes":\n{texts[1]}}}'

    draft = read_document(document.encode())

    assert draft.faults == []
    assert [draft.manifest.metadata.decode(), draft.manifest.attributes.decode()] == texts


@given(st.binary(max_size=40) | words.map(str.encode) | free.map(lambda value: json.dumps(value).encode()))
def test_reader_takes_nothing_that_the_standard_refuses_and_never_fails(data: bytes) -> None:
    try:
        members(data, "document")
    except JsonError:
        return
    assert isinstance(json.loads(data), dict)


@given(free)
def test_json_with_a_repeated_key_anywhere_is_refused(value: Any) -> None:
    inner = json.dumps(value)
    document = f'{{"manifest_version":"v1","metadata":{{"x":[{inner},{{"a":{inner},"a":{inner}}}]}},"resources":[]}}'

    with pytest.raises(JsonError) as caught:
        members(document.encode(), "document")

    assert (caught.value.path, caught.value.rule) == ("metadata.x[1].a", "json.duplicate_key")


@given(manifests)
@settings(deadline=None)
def test_canonical_document_reads_back_as_the_manifest(manifest: Manifest) -> None:
    manifest.metadata, manifest.attributes = b'{"a": 1}', b"{}"
    document = canonical(manifest)

    assert read_document(document).manifest == manifest
    assert canonical(read_document(document).manifest) == document


@pytest.mark.req("R001-1.41")
def test_depth_of_a_hundred_passes() -> None:
    good = b"{" + b'"a":{' * 99 + b"}" * 100
    assert read_document(b'{"metadata":%s}' % good).faults == []
    assert read_document(b'{"metadata":%s}' % good.replace(b"{}", b'{"a":"[[{"}')).faults == []
    deep = good.replace(b"{}", b'{"a":[]}')
    assert [fault.rule for fault in read_document(b'{"metadata":%s}' % deep).faults] == ["json.depth"]


@pytest.mark.parametrize(
    "url",
    [
        "http://h", "https://h/", "HTTP://H:1/", "http://h:65535/", "http://user:pw@h/", "http://[::1]:80/", "http://h?q",
        "http://h#f", "http://h/a b", "http://h/é", "http://bücher.example/", "http://under_score.example/ok", "http://h:/",
        "http://h/a%2Fb?s=%28#x", "http://127.0.0.1/", "http://h/[x]|{y}", "http://h/:@//",
    ],
)  # fmt: skip
def test_good_urls_pass(url: str) -> None:
    assert url_fault(url) is None
    assert violations(Resource(id="a", url=url)) == []


def test_a_url_of_another_scheme_is_refused_in_words() -> None:
    draft = read_document(b'{"manifest_version":"v1","resources":[{"id":"a","url":"example.com/a.png"}]}')
    (broken,) = check(draft, 10)
    assert (broken.field, broken.rule) == ("resources[0].url", "string.pattern")
    assert broken.description == "must begin with http:// or https://"
