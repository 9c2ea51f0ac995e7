"""What the demo fetches, and how each resource must end."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cli.sample_site import SampleSite

STORED = "stored"
_WRONG_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class Case:
    """One resource: its path on the sample site, how it must end (`stored` or a failure code), and what it shows."""

    id: str
    path: str
    expected: str
    shows: str
    checksum: str = ""

    def resource(self, site: SampleSite) -> dict[str, object]:
        """Its entry in a manifest."""
        tags = {"checksum_hint": self.checksum} if self.checksum else {}
        return {"id": self.id, "url": site.url(self.path), "tags": tags}


def images(site: SampleSite, count: int = 12) -> list[Case]:
    """Good resources, most with a checksum that they must have."""
    cases = [
        Case(f"image-{n:02}", f"/images/{n}.png", STORED, "a PNG", f"sha256:{site.sha256(f'/images/{n}.png')}")
        for n in range(1, count + 1)
    ]
    cases.append(Case("photo", "/photo.jpg", STORED, "a JPEG"))
    cases.append(Case("moved", "/redirect", STORED, "a redirect"))
    return cases


def trouble() -> list[Case]:
    """What the web does to a downloader."""
    return [
        Case("large", "/large.bin", STORED, "9 MB, uploaded in parts"),
        Case("slow", "/slow.txt", STORED, "bytes that drip"),
        Case("flaky", "/flaky.txt", STORED, "503 twice, then well"),
        Case("missing", "/status/404", "DOWNLOAD_HTTP_404", "not found"),
        Case("truncated", "/truncated", "DOWNLOAD_TRUNCATED", "a body that breaks off"),
        Case(
            "wrong",
            "/images/1.png",
            "DOWNLOAD_CHECKSUM_MISMATCH",
            "other bytes than promised",
            f"sha256:{_WRONG_DIGEST}",
        ),
    ]


def manifest(site: SampleSite, cases: Sequence[Case], title: str) -> bytes:
    """The document to submit."""
    document = {
        "manifest_version": "v1",
        "metadata": {"title": title, "crawl_id": 847458834325543643},
        "resources": [case.resource(site) for case in cases],
        "attributes": {"tenant": "demo"},
    }
    return json.dumps(document, indent=1).encode()
