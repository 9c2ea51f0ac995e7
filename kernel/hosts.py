"""Sites: the name of a server under which limits, gates and circuit breakers know it, `example.org:8443`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kernel.errors import Violation, invalid
from kernel.hostname import UrlError, clean_host

_PLACE: Final = re.compile(
    r"(https?)://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^:/?#]*)(?::([0-9]{0,5}))?(?=[/?#]|$)", re.IGNORECASE
)
_OWN_PORTS: Final = {"http": 80, "https": 443}


@lru_cache(4096)
def site_of_url(url: str) -> str:
    """The site of an http or https URL; empty where it has none. Ports of the scheme's own are left out."""
    match = _PLACE.match(url.strip())
    if match is None:
        return ""
    scheme, host, port = match[1].lower(), match[2], int(match[3] or 0)
    try:
        name = clean_host(host.encode(errors="replace")).rstrip(".")
    except UrlError:
        return ""
    return name if port in {0, _OWN_PORTS[scheme]} else f"{name}:{port}"


def site_of(text: str, field: str = "host") -> str:
    """The site that somebody names: a site, a host with or without a port, or a URL. `INVALID_PAYLOAD` for none."""
    if "://" in text:
        site = site_of_url(text)
    elif text.count(":") > 1 and "[" not in text:
        site = text  # that of an IPv6 address, which has no brackets
    elif "/" in text or "@" in text:
        site = ""
    else:
        site = site_of_url(f"{'http' if text.endswith(':443') else 'https'}://{text}")  # the port as it is named
    if not site:
        rule = Violation(field, "must be a host, with its port where that is not the scheme's own: example.org:8443")
        raise invalid(f"{field} names no host: {text[:64]!r}", [rule])
    return site
