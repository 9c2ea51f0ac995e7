"""Secrets do not get out, and what is no secret is shown as it is."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import pages, redaction
from kernel.errors import FetchboxError

SECRET = "s3cr3tvalue"


@pytest.mark.parametrize(
    "name",
    [
        "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "X-Goog-Signature", "X-Goog-Credential", "sig",
        "Signature", "Policy", "Key-Pair-Id", "AWSAccessKeyId", "token", "access_token", "api_key", "apikey", "key",
        "password", "client_secret", "auth", "code", "jwt", "AccessKeyId", "sessionid", "hmac",
    ],
)  # fmt: skip
def test_signed_parameters_are_hidden(name):
    url = redaction.url(f"https://h:8/p/q?a=1&{name}={SECRET}&b=%20#f")
    assert SECRET not in url
    assert url == f"https://h:8/p/q?a=1&{name}=REDACTED&b=%20#f"
    assert SECRET not in redaction.text(f"GET <https://h/p?{name}={SECRET}> failed")


@pytest.mark.parametrize(
    "url", ["http://a/b", "https://a/b?page=2&sort=asc&width=100", "http://a/?x=%2F&y=", "http://[::1]:8/"]
)
def test_harmless_urls_are_shown_as_they_are(url):
    assert redaction.url(url) == url
    assert redaction.text(f"got {url} twice") == f"got {url} twice"


def test_user_information_and_encoded_names_are_hidden():
    assert redaction.url("https://user:pw@h/x") == "https://REDACTED@h/x"
    assert SECRET not in redaction.url(f"https://h/x?%73ig={SECRET}")
    assert redaction.url("http://[bad") == "REDACTED"


@pytest.mark.parametrize(
    "target",
    [
        f"http://u:{SECRET}@h/", f"http://h/?sig={SECRET}", f"http%3A%2F%2Fu%3A{SECRET}%40h", f"//u:{SECRET}@h",
        f"http%3a%2f%2fh%2f%3fa%3d1%26token%3d{SECRET}", f"/login?next=1;password={SECRET}",
    ],
)  # fmt: skip
def test_secrets_in_a_url_that_is_a_parameter_are_hidden(target):
    assert redaction.url(f"http://h/?to={target}") == "http://h/?to=REDACTED"
    assert SECRET not in redaction.text(f"at http://h/?a=1&to={target}: refused")


def test_a_harmless_url_as_a_parameter_is_shown():
    url = "http://h/?to=http://other/x?page=2&mail=a@b"
    assert redaction.url(url) == url


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {SECRET}", f"sent authorization={SECRET}", f'"Cookie": "a={SECRET}"',
        f"Set-Cookie: id={SECRET}; Path=/", f"Proxy-Authorization: Basic {SECRET}", f"with bearer {SECRET}",
    ],
)  # fmt: skip
def test_credential_headers_in_text_are_hidden(line):
    assert SECRET not in redaction.text(line)


def test_fields_with_secret_names_are_hidden_and_others_kept():
    facts = {"Authorization": SECRET, "cookie": SECRET, "x-api-key": SECRET, "session_token": SECRET,
             "url": f"https://h/?sig={SECRET}", "code": "DOWNLOAD_DNS", "key": "resources/a", "manifest_key": "s3://a/b",
             "attempt": "2"}  # fmt: skip
    shown = redaction.fields(facts)
    assert SECRET not in str(shown)
    assert {name: shown[name] for name in ("code", "key", "manifest_key", "attempt")} == {
        "code": "DOWNLOAD_DNS", "key": "resources/a", "manifest_key": "s3://a/b", "attempt": "2"
    }  # fmt: skip


@given(st.text())
def test_redaction_never_fails(text):
    redaction.url(text)
    redaction.text(text)


@given(st.text(min_size=1), st.lists(st.text(), max_size=3))
def test_page_tokens_come_back_and_belong_to_their_filters(cursor, filters):
    token = pages.token(cursor, filters)
    assert pages.cursor(token, filters) == cursor
    with pytest.raises(FetchboxError):
        pages.cursor(token, [*filters, "x"])


@given(st.text(max_size=200))
def test_a_foreign_token_is_refused_or_empty(token):
    with contextlib.suppress(FetchboxError):
        assert token == "" or pages.token(pages.cursor(token, ()), ()).rstrip("=") == token.rstrip("=")
