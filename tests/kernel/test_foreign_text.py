"""Text of others is valid, visible and bounded wherever it is recorded or shown."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import coloured, out
from kernel import foreign_text
from kernel.foreign_text import LONGEST_ALL, MOST_PARTS, fit, fit_all, fit_fields, visible, visible_json
from kernel.queue.work.types import Failure

ANY = st.text(st.characters(codec=None, categories=None))  # halves of pairs, too
HOSTILE = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\x90q\x9c",
    "a\rb",
    "a\x08b",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "zero\u200bwidth",
    "line\u2028end",
    "half \ud83d pair",
    b"Non trouv\xe9".decode("utf-8", "surrogateescape"),
]


@given(ANY)
def test_what_is_visible_is_utf8_and_holds_no_controls(text: str) -> None:
    seen = visible(text)
    seen.encode()
    assert not {letter for letter in seen if unicodedata.category(letter) == "Cc"} - {"\t", "\n"}
    assert visible(seen) == seen
    if text.isprintable() and "\u200b" not in text:
        assert seen == text


@given(ANY, st.integers(1, 50))
def test_what_fits_is_no_longer_than_it_may_be(text: str, longest: int) -> None:
    assert len(fit(text, longest)) <= longest


@given(st.lists(ANY, max_size=80))
def test_lists_are_bounded_in_number_length_and_sum(texts: list[str]) -> None:
    kept = fit_all([text * 900 for text in texts], 512)
    assert len(kept) <= MOST_PARTS + 1
    assert all(len(text) <= 512 for text in kept)
    assert sum(map(len, kept)) <= LONGEST_ALL + 1


@given(st.dictionaries(ANY, ANY, max_size=40))
def test_fields_are_bounded_in_length_and_sum(fields: dict[str, str]) -> None:
    kept = fit_fields({name: text * 3000 for name, text in fields.items()})
    assert all(len(text) <= foreign_text.LONGEST for text in kept.values())
    assert sum(map(len, kept.values())) <= LONGEST_ALL
    assert len(kept) <= len(fields)


@given(st.recursive(ANY | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(ANY, inner), max_leaves=8))
def test_json_means_what_it_meant(value: object) -> None:
    document = json.dumps(value, ensure_ascii=False)
    assert json.loads(visible_json(document)) == json.loads(document)
    visible_json(document).encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_failure_holds_only_what_can_be_published_and_shown(text: str) -> None:
    failure = Failure(f"CODE{text}", f"the server said {text}")
    assert visible(failure.message) == failure.message
    assert visible(failure.code) == failure.code
    assert len(Failure("CODE", text * 100_000).message) <= 4096


def test_bytes_that_are_no_utf8_are_read_as_the_web_did() -> None:
    assert visible(HOSTILE[-1]) == "Non trouvé"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_obeys_nothing_that_others_wrote(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    out.line(text)
    out.facts({"last_error": text})
    out.table(["job", "error"], [["j1", text]])
    out.document({"error": text})
    printed = capsys.readouterr().out
    assert visible(printed) == printed
    assert json.loads(printed.splitlines()[-1]) == {"error": text}
    assert visible(coloured(text).plain) == coloured(text).plain
