"""What stands in place of a secret, and secrets that are known by how they look, whatever their name."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "REDACTED"
"""What stands in place of a secret."""

SHAPE_MARK: Final = (
    "eyj|sk[-_]|rk_|a[ks]ia|gh[a-z]_|github_pat_|gl[a-z]{1,6}-|xox[a-z]-|xapp-|aiza|ya29|gocspx|private key-----|hf_"
    "|npm_|pypi-|sg\\.|whsec_|shp[a-z]{2}_|do[opr]_v1_|age-secret-key"
    "|gsk_|r8_|rpa_|tgp_v1_|lsv2_[ps]|vercel_|vc[aikpr]_|dckr_[op]at_|glsa_|glc_ey|nfp_|sbp_|sb_secret|sntry[su]_|lin_api_|ntn_"
    "|rnd_|figd_|ph[cx]_|pscale_|jina_|xai-|nvapi-|pplx-|csk-|tvly-|pmak-|nrak-|tskey-|sq0[ac][ts]p-|hv[bs]\\.|dp\\.[cps]"
    "|dapi[0-9a-f]{32}|atatt3|rubygems_|[0-9]:[0-9a-z_-]{35}|hook|/with/key/|//[^/?#\\s]*@"
)
"""What a text has at least in which a secret is known by its look; for `re` and RE2, whatever the case."""
_MARK: Final = re.compile(SHAPE_MARK, re.IGNORECASE)
_SHAPE: Final = re.compile(
    r"(?<![\w-])(?:"
    r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|sk-[A-Za-z0-9_*.-]{4,}"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9+/=]{8,}"
    r"|A[KS]IA[0-9A-Z]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-[A-Za-z0-9_.-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}"
    r"|AIza[0-9A-Za-z_-]{30,}|ya29\.[0-9A-Za-z_-]{16,}|GOCSPX-[0-9A-Za-z_-]{16,}"
    r"|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r"|shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{16,}|do[opr]_v1_[a-f0-9]{16,}|AGE-SECRET-KEY-[0-9A-Z]{16,}"
    r"|(?:gsk|r8|rpa|nfp|sbp|sntry[su]|lin_api|ntn|rnd|ph[cx]|jina|rubygems)_[A-Za-z0-9]{16,}"
    r"|vercel_(?:blob_rw_)?[A-Za-z0-9_]{20,}|vc[aikpr]_[A-Za-z0-9]{20,}|(?:pscale_(?:tkn|pw|oauth)|figd)_[A-Za-z0-9_-]{16,}"
    r"|tgp_v1_[A-Za-z0-9_-]{16,}|lsv2_(?:pt|sk)_[A-Za-z0-9_]{16,}|dckr_[op]at_[A-Za-z0-9_-]{16,}"
    r"|glsa_[A-Za-z0-9_]{16,}|glc_ey[A-Za-z0-9+/=]{16,}|sb_secret_[A-Za-z0-9_-]{16,}"
    r"|(?:xai|nvapi|pplx|csk|tvly|PMAK|NRAK|tskey|sq0(?:atp|csp))-[A-Za-z0-9_-]{16,}"
    r"|hv[bs]\.[A-Za-z0-9_-]{16,}|dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{16,}|dapi[0-9a-f]{32}(?:-[0-9])?"
    r"|ATATT3[A-Za-z0-9_=-]{16,}"
    r"|(?:bot)?[0-9]{6,12}:[A-Za-z0-9_-]{35}"
    r")"
)
"""JSON Web Tokens, and keys of vendors: of models, clouds, forges, registries, payments, chats and watches."""
_HOOK: Final = re.compile(
    r"("
    r"(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)"
    r"|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks"
    r"|webhook\.office\.com/webhookb?[0-9]?"
    r"|hooks\.zapier\.com/hooks/catch|/with/key)/)"
    r"[^\s\"'<>?#]++",
    re.IGNORECASE,
)
"""Addresses that whoever knows them may post to: of Slack, Discord, Teams, Zapier and IFTTT."""
_USER: Final = re.compile(r"(?<![\w:/])//[^/?#\s\"'<>@:]*+:[^/?#\s\"'<>@]*+@")
"""A password in an address that names no scheme."""
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")


def shapes(text: str) -> str:
    """The text without secrets that are known by how they look."""
    if not _MARK.search(text):
        return text
    text = _HOOK.sub(lambda found: found[1] + HIDDEN, _without_keys(text))
    return _USER.sub(f"//{HIDDEN}@", _SHAPE.sub(HIDDEN, text))


def _without_keys(text: str) -> str:
    """Without private keys; one that does not end reaches to the end of the text."""
    shown: list[str] = []
    at = 0
    while begun := _KEY_BEGINS.search(text, at):
        shown += (text[at : begun.start()], HIDDEN)
        ended = _KEY_ENDS.search(text, begun.end())
        at = ended.end() if ended else len(text)
    return "".join((*shown, text[at:]))
