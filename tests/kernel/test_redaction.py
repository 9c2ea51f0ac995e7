"""One table of what is hidden and what is not; every sink shows what this module makes of a text (issue 11)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel import redaction

SECRET = "S3cr3tValue"

NAMES = [
    "token", "authToken", "auth_token", "AUTH-TOKEN", "authtoken", "access_token", "accessToken", "refreshToken",
    "id_token", "X-Auth-Token", "x-amz-security-token", "X-Amz-Signature", "X-Amz-Credential", "X-Goog-Signature",
    "AWSAccessKeyId", "OSSAccessKeyId", "awsSecretAccessKey", "secret_access_key", "accountKey", "AccountKey",
    "Ocp-Apim-Subscription-Key", "x-functions-key", "SharedAccessSignature", "sig", "signature", "q-signature", "q-ak",
    "hdnea", "hdnts", "hdntl", "HDNEA", "wsSecret", "txSecret", "auth_key", "password", "Password", "userPassword",
    "user_pass", "pass", "passwd", "pwd", "PWD", "passphrase", "clientSecret", "client_secret", "apiKey", "api_key",
    "apikey", "X-Api-Key", "privateKey", "ticket", "casTicket", "jwt", "hmac", "cookie", "csrfToken", "XSRF-TOKEN",
    "session_id", "sessionId", "sessionid", "SID", "connect.sid", "PHPSESSID", "JSESSIONID", "ASP.NET_SessionId",
    "SAMLResponse", "client_assertion", "credentials", "Authorization", "Proxy-Authorization", "oauth_signature",
    "ToKeN", "tOKEN", "AuThToKeN", "PaSsWoRd", "aPiKeY", "SeSsIoNiD", "pw", "PW", "pw2", "user_pw", "psw", "pswd",
    "PSWD", "passw", "userpass", "UserPass", "dbpass", "keystorepass", "keyStorePass", "truststorepass", "rootpw",
    "dbpwd", "cf_clearance", "CF_Clearance", "__cf_bm", "_wpnonce", "authtok",
    "password2", "edge-cache-token", "__token__", "otp", "redis_password", "sess", "userSession",
]  # fmt: skip
"""Names of secrets, wherever they stand."""
PARAMETERS = ["key", "Key-Pair-Id", "Policy", "code", "sign", "ak", "KeY", "CoDe", "sas", "SaS", "tok", "mac"]
"""Names that are of secrets in URLs alone."""
HARMLESS = [
    "max_tokens", "design", "signal", "keyboard", "author", "passive", "compass", "monkey", "tokenizer", "inside",
    "session-timeout", "manifest_key", "attempt", "bucket", "final_url", "status", "signed", "secretary", "passenger",
    "expires", "X-Amz-Date", "X-Amz-Expires", "authors", "bypass", "macro", "stomach", "sasquatch", "trespass",
    "bandpass", "stoke", "tokyo", "machine", "immac", "spw", "pwned", "cf_ray", "announce", "submit",
    "Stock", "DeSiGn", "passwind", "multipass", "clearances", "imac",
]  # fmt: skip

URLS = [
    f"https://u:{SECRET}@h/x",
    f"redis://:{SECRET}@h:6379/0",
    f"https://{SECRET}@h/",
    f"https://h/a;token={SECRET}/b",
    f"https://h/a;jsessionid={SECRET}?x=1",
    f"https://h/hdnts=exp=1~acl=/*~hmac={SECRET}/a.ts",
    f"https://h/exp=1~hmac={SECRET}/a.ts",
    f"https://h/?hdnea=exp=1~acl=/*~hmac={SECRET}",
    f"https://h/?a=1;password={SECRET}",
    f"https://h/#access_token={SECRET}&x=1",
    f"https://h/#/done?token={SECRET}",
    f"https://h/?%74oken={SECRET}",
    f"https://h/?%2574oken={SECRET}",
    f"https://h/?user[password]={SECRET}",
    f"https://h/?to=https://u:{SECRET}@i/",
    f"https://h/?to={quote(f'https://i/?token={SECRET}', safe='')}",
    f"https://h/?to={quote(quote(f'https://i/?token={SECRET}', safe=''), safe='')}",
    f"https://h/?to={quote(quote(quote(f'https://i/?a=1&authToken={SECRET}', safe=''), safe=''), safe='')}",
    f"https://h/?to={quote(quote(f'//u:{SECRET}@i', safe=''), safe='')}",
    f"https://h/?state={quote(f'token={SECRET}', safe='')}",
    f"https://h/?body={quote(json.dumps({'apiKey': SECRET}), safe='')}",
    f"https://h/proxy/https://u:{SECRET}@i/x",
    f"https://h/proxy/{quote(f'https://i/?sig={SECRET}', safe='')}",
    f"https://acc.blob.core.windows.net/c/b?sv=2022-11-02&se=2026-01-01&sp=r&sig={SECRET}%3D",
    f"https://b.s3.amazonaws.com/a?X-Amz-Date=20261128&X-Amz-Signature={SECRET}&X-Amz-Security-Token={SECRET}",
    f"https://storage.googleapis.com/b/o?X-Goog-Signature={SECRET}&X-Goog-Credential={SECRET}",
    f"https://b.oss-cn.aliyuncs.com/o?OSSAccessKeyId={SECRET}&Expires=1&Signature={SECRET}",
    f"https://hooks.slack.com/services/T0001/B0001/{SECRET}",
    f"https://discord.com/api/webhooks/123456/{SECRET}",
    f"https://discordapp.com/api/v10/webhooks/123456/{SECRET}?wait=1",
    f"https://acme.webhook.office.com/webhookb2/a@b/IncomingWebhook/{SECRET}/c",
    f"https://hooks.zapier.com/hooks/catch/123/{SECRET}/",
    f"https://maker.ifttt.com/trigger/done/with/key/{SECRET}",
    f"https://c.cloudfront.net/o?Expires=1&Signature={SECRET}&Key-Pair-Id={SECRET}&Policy={SECRET}",
]
LINES = [
    f"password={SECRET}", f"password: {SECRET}", f"Password = '{SECRET}'", f'"password": "{SECRET}"',
    f"{{'authToken': '{SECRET}', 'a': 1}}", f'\\"apiKey\\":\\"{SECRET}\\"', f"x-auth-token: {SECRET}",
    f"sent X-Api-Key: {SECRET}, got 401", f"authToken={SECRET}&a=1", f"token: {SECRET}", f"token={SECRET}",
    f"api_key => {SECRET}", f"secret := {SECRET}", f"curl --password {SECRET} http://h", f"--auth-token={SECRET}",
    f"Authorization: Bearer {SECRET}", f"Cookie: a=1; sid={SECRET}", f"bearer {SECRET}", f"Basic {SECRET}=",
    f"GET https://h/?authToken={SECRET} failed", f"<password>{SECRET}</password>", f"tokens = [{SECRET}, {SECRET}]",
    f"connect.sid: {SECRET}", f"session={SECRET}", f"ticket={SECRET}", f"pwd={SECRET};server=h",
    f"refused eyJhbGciOiJ9.eyJzdWIiOiI{SECRET}.sig", f"key sk-proj-{SECRET}", "AKIAIOSFODNN7EXAMPLE",
    f"//u:{SECRET}@h/x", f"proxy //u:{SECRET}@h refused", f"at (//app:{SECRET}@db:5432/app)",
    f"github_pat_{SECRET * 3}", f"hf_{SECRET * 3}", f"npm_{SECRET * 3}", f"whsec_{SECRET}", f"sk_live_{SECRET}",
    f"SG.{SECRET}.{SECRET}", f"ya29.{SECRET * 3}", f"GOCSPX-{SECRET * 2}", f"xapp-1-{SECRET}", f"pypi-{SECRET * 2}",
    f"posted to hooks.slack.com/services/T1/B1/{SECRET}, got 404",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"DSN postgres://app:{SECRET}@db/app?sslmode=off", f"user={SECRET[:0]}x password={SECRET}",
    f"http:\\/\\/u:{SECRET}@h\\/x", f'{{"to":"https:\\/\\/{SECRET}@h\\/x"}}', f"http:\\\\/\\\\/u:{SECRET}@h\\\\/x",
    f"https:\\/\\/h\\/?code={SECRET}", f"\\/\\/u:{SECRET}@h", f"{{'token': b'{SECRET}'}}", f"password=u'{SECRET} x'",
    f'secret = rb"{SECRET}"', f"token%3D{SECRET}", f"a%3D1%26token%3D{SECRET}", f"%3Fpw%253D{SECRET}%26b",
    f"%7B%22apiKey%22%3A%22{SECRET}%22%7D", f"user%5Bpassword%5D%3D{SECRET}", f"user:{SECRET}@host",
    f"mine:{SECRET.upper()}@h",
    f"app:{SECRET}@db.example.com:5432/app", f"dsn=root:{SECRET}@tcp(127.0.0.1:3306)/db", f"u:x@{SECRET}@10.0.0.1:80",
    f"curl -u app:{SECRET}@[::1]:80", f"api key: {SECRET}", f"the API  Key = {SECRET}", f"pass phrase: {SECRET}",
    f"Pass Word: '{SECRET}'", f'"private key": "{SECRET}"', f"session id: {SECRET}", f"access key id: {SECRET}",
    f"<password type='x'>{SECRET}<", f"<ns:token a='1'\n b='2' >{SECRET}</ns:token>", f"<pw><![CDATA[{SECRET}]]></pw>",
    f'<add key="password" value="{SECRET}"/>', f'<input type="hidden" name="csrf_token" value="{SECRET}">',
    f'name="password" value={SECRET}', f"{{'name': 'X-Api-Key', 'value': '{SECRET}'}}",
    f'<input value="{SECRET}" id="a" name="csrf_token">', f'<meta content="{SECRET}" name="csrf-token" />',
    f'name=\\"password\\" value=\\"{SECRET}\\"', f"\"name\": 'token', \"value\": b'{SECRET}'",
    f"glc_ey{SECRET * 3}/{SECRET}==",
]  # fmt: skip
KEYS = [
    f"{mark}{SECRET * 4}"
    for mark in (
        "gsk_", "xai-", "nvapi-", "r8_", "dckr_pat_", "dckr_oat_", "sk-ant-api03-", "sk-or-v1-", "pplx-", "tgp_v1_",
        "lsv2_pt_", "lsv2_sk_", "vercel_", "vercel_blob_rw_", "vcp_", "vck_", "rpa_", "glsa_", "nfp_", "sbp_",
        "sb_secret_", "sntrys_", "sntryu_", "lin_api_", "ntn_", "rnd_", "figd_", "phc_", "phx_", "pscale_tkn_", "jina_",
        "csk-", "tvly-", "PMAK-", "NRAK-", "tskey-auth-", "sq0atp-", "sq0csp-", "hvs.", "hvb.", "dp.pt.", "ATATT3xF",
        "rubygems_",
    )
] + [f"dapi{'0a1b2c3d' * 4}"]  # fmt: skip
"""Keys that are known by how they look."""
PLAIN = [
    "mail to:bob2@example.com, cc:Bob.Smith@example.com", "a:b@c", "note a:b@c.d", "user:bob@example.com",
    "at 12:30@room", "host:8080@node", "h:50051@a.b:1", "image:1.2.3@sha256:0a1b2c", "uses:checkout@v4",
    "sip:Alice12345@example.com",
    "owner:bob.smith@example.com,carol@example.com", "the api key of it", "pass: all of them", "api keyboard: qwerty",
    "<a b='c'>token</a>", '<add key="colour" value="blue"/>', '<input value="7" name="page">', "width%3D100%26x%3D1",
    "http:\\/\\/h\\/x?page=2", 'name="page" value="password"', "{'name': 'tokens', 'value': 12}", "b'x': b'y'",
    "100%key", '<password type="none"/>gone', "git@github.com:owner/name", "ssh:git@github.com/a",
    "gsk_id of nvapi-1, xai-chat", "r8_2", "vercel_project", "my_vcp_settings_directory_name", "hvs.path", "dp.pt.x",
    "dapi0a1b", "pplx-70b-online", "rnd_seed", "sb_secret_name", "tgp_v1_x", "lin_api_url",
    "got https://a/b?page=2&sort=asc&width=100 twice", "max_tokens=12, total_tokens: 40", "design: ready",
    "token: unexpected end of input", "security.tenant_tokens: must name a tenant", "time 12:30:05 at step 4",
    "http://[::1]:8/", "code=DOWNLOAD_DNS key=resources/a", "the key of the job is manifests/a", "a = b, c: d",
    "author: me; inside=1",
    "a // b: c @ d", "see //host/a:b@c", "hooks.slack.com is down", "hook: ran",
    "https://h/?to=http://other/x?page=2&mail=a@b", "https://h/a=b/c;v=1?x=%2F&y=",
    "https://h/p?q=caf%C3%A9%20100%25", '{"a": "b", "n": 1}',
]  # fmt: skip


@pytest.mark.parametrize("short", ["PLANTK", "abc12", "x1", "A", "a.b-C"])
def test_a_bearer_token_is_hidden_however_short(short: str) -> None:
    assert redaction.text(f"refused Bearer {short}, try again") == "refused Bearer REDACTED, try again"
    for prose in ("a bearer token is missing", "Basic Auth is required", "the bearer of news"):
        assert redaction.text(prose) == prose


@pytest.mark.parametrize("name", NAMES)
def test_secret_names_are_known_in_every_place(name: str) -> None:
    assert redaction.is_secret_name(name)
    assert redaction.fields({name: SECRET}) == {name: "REDACTED"}
    assert redaction.url(f"https://h/p?a=1&{name}={SECRET}&b=2") == f"https://h/p?a=1&{name}=REDACTED&b=2"
    assert redaction.url(f"https://h/p;{name}={SECRET}/q") == f"https://h/p;{name}=REDACTED/q"
    assert json.loads(redaction.json_text(json.dumps({"a": {name: SECRET}}))) == {"a": {name: "REDACTED"}}
    assert json.loads(redaction.json_text(json.dumps([{"name": name, "value": SECRET}])))[0]["value"] == "REDACTED"
    for line in (f"{name}={SECRET}", f"{name}: {SECRET}", f'"{name}":"{SECRET}"', f"GET https://h/?{name}={SECRET} x"):
        assert SECRET not in redaction.text(line), line


@pytest.mark.parametrize("name", PARAMETERS)
def test_some_names_are_secret_in_urls_alone(name: str) -> None:
    assert redaction.url(f"https://h/?{name}={SECRET}") == f"https://h/?{name}=REDACTED"
    assert redaction.fields({name: "resources/a"}) == {name: "resources/a"}


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_are_shown(name: str) -> None:
    assert redaction.fields({name: "42"})[name] == "42" or name == "max_tokens"
    assert redaction.url(f"https://h/?{name}=42") == f"https://h/?{name}=42" or name in ("max_tokens", "manifest_key")
    assert redaction.text(f"{name}=42 {name}: 42") == f"{name}=42 {name}: 42"


@pytest.mark.parametrize("url", URLS)
def test_no_part_of_a_url_shows_a_secret(url: str) -> None:
    for shown in (redaction.url(url), redaction.bare_url(url), redaction.text(f"at <{url}>: refused")):
        assert SECRET not in shown


@pytest.mark.parametrize("line", LINES)
def test_no_text_shows_a_secret(line: str) -> None:
    shown = redaction.text(line)
    assert SECRET not in shown
    assert "AKIAIOSFODNN7EXAMPLE" not in shown
    assert redaction.is_marked(line)


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_vendors_are_known_by_their_look(key: str) -> None:
    assert redaction.text(f"refused {key}, try again") == "refused REDACTED, try again"
    assert redaction.text(f"a={key}") == "a=REDACTED"
    assert redaction.url(f"https://h/{key}/x?a={key}") == "https://h/REDACTED/x?a=REDACTED"
    assert redaction.is_marked(key)


@pytest.mark.parametrize("login", ["user:PW@host", "root:toor@db", "postgres:postgres@db:5432/a", "me:abc@h/x"])
def test_a_password_of_a_login_is_hidden_however_short(login: str) -> None:
    user, _, rest = login.partition(":")
    assert redaction.text(f"at {login}, twice") == f"at {user}:REDACTED@{rest.partition('@')[2]}, twice"


@pytest.mark.parametrize("line", PLAIN)
def test_what_is_no_secret_is_shown_as_it_is(line: str) -> None:
    assert redaction.text(line) == line


@pytest.mark.parametrize("kind", [redaction.text, redaction.url, redaction.json_text])
@given(text=st.text())
@example(text="%" * 20)
@example(text="--token")
@example(text="token=")
@example(text='token="')
@example(text="http:\\/\\/u:p@h\\/?token=x token%3Dx api key: x u:Passw0rd@h")
@example(text="bearer =://")
@example(text="gsk_aaaaaaaaaaaaaaaa://h/ gsk_aaaaaaaaaaaaaaaa.a:b")
@example(text="<pw a='b'><![CDATA[x]]></pw> name='pw' value='x' <a value='x' name='pw'>")
def test_redaction_never_fails_and_changes_nothing_twice(kind: Callable[[str], str], text: str) -> None:
    once = kind(text)
    assert kind(once) == once


@given(st.text())
def test_what_has_no_mark_is_not_changed(text: str) -> None:
    if not redaction.is_marked(text):
        assert redaction.text(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "a", "key ", "token ", "token=", "token: a ", "[", "[a]", '"', '\\"', "'", "\\", "--", "--token ", "%", "%25",
        "&a=", ";a=",
        "//a:", "//a:b@", "::", "hooks.slack.com/services/", "/with/key/", "SG.", "gl", "hook",
        "//", "@", "a@", "://", "http://a ", "http://h/?a=", "cookie: \n", "eyJ", "eyJaaaaaa.", "sk-",
        "1:", "<a>", "gsk_", "xai-", "r8_", "vercel_", "dp.pt.", "dapi0a",
        "http:\\/\\/", "\\/", "\\/\\/a:", "token%3D", "api key ", "pass ", "a:b", "a:b@",
        "u:Pw12345@h", "a:@", "<a b ",
        "<token a='", "<token x>", 'name="token" ', 'value="a" ', 'value="a" name="token" ', "b'", "token: b'",
        "<a><![CDATA[", "key=token value=",
        "q_", "cf_", "pw=", "ToKeN=",
        "<token>", "-----BEGIN PRIVATE KEY-----", "Aa", "AA", "_", "=", ":", "token\n", "bearer ", "{", '{"token":',
    ],
)  # fmt: skip
def test_a_hostile_text_costs_no_more_than_its_size(piece: str) -> None:
    """Four times the text may cost four times the time, and a wide margin; the square would be sixteen times."""
    small, large = piece * (40_000 // len(piece)), piece * (160_000 // len(piece))
    for kind in (redaction.text, redaction.url, redaction.query, redaction.path, redaction.json_text):
        shortest = min(_seconds(kind, small) for _ in range(3))
        assert _seconds(kind, large) < 11 * shortest + 0.25, kind


def _seconds(kind: Callable[[str], str], text: str) -> float:
    began = time.process_time()
    kind(text)
    return time.process_time() - began
