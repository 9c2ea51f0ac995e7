"""What a fetch stored, and where every byte of it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fetched:
    """A stored resource. URLs carry no credentials: user info is gone and signed query values are redacted."""

    bucket: str
    key: str
    size: int
    """Bytes of the object: those of the wire, a content coding included."""
    sha256: str
    content_type: str
    """A valid media type: the received one, else the hint, else the sniffed one, else `application/octet-stream`."""
    final_url: str
    http_status: int
    wire_length: int
    """Bytes of body that came over the wire; more than `size` where a cut body was begun anew."""
    coding: str
    """The `Content-Encoding` as received; the object holds the coded bytes. Empty: none."""
    length_known: bool
    """False where only the end of the connection ended the body, so that a cut could not be told from an end."""
    complete: bool = True
    """False where not even TLS said that the body has come to its end."""
    hops: tuple[str, ...] = ()
    """The URLs that redirected, in order."""
    address: str = ""
    """The address that was dialled for the final hop; empty behind a proxy."""
    proxy: str = ""
    """`host:port` of the proxy that served; empty for a direct connection."""
    checksum: str = ""
    """On which bytes the checksum hint matched: `wire`, `decoded`, or empty without a hint."""
    flags: tuple[str, ...] = ()
    """Oddities that did not fail it: `empty`, `partial`, `resumed`, `coding_unknown`, `coding_mismatch`, …"""

    def provenance(self) -> dict[str, str]:
        """What else is known of where the bytes came from, for the log of the job; empty facts are left out."""
        facts = {
            "address": self.address,
            "proxy": self.proxy,
            "coding": self.coding,
            "wire_length": "" if self.wire_length == self.size else str(self.wire_length),
            "checksum": self.checksum,
            "length_known": "" if self.length_known else "false",
            "complete": "" if self.complete else "unknown",
            "hops": " ".join(self.hops),
            "flags": " ".join(self.flags),
        }
        return {name: fact for name, fact in facts.items() if fact}
