"""Files that a configuration names: what cannot be used is named by its key."""

from pathlib import Path

import pytest
import trustme

from cli.config_files import require_files
from kernel.config.loading import ConfigError, load


def wrong(**environ: str | Path) -> set[str]:
    config = load(None, {name: str(value) for name, value in environ.items()})
    try:
        require_files(config)
    except ConfigError as error:
        return {error.key, *(key for key, _ in error.more)}
    return set()


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued, other = authority.issue_cert("h"), authority.issue_cert("h")
    cert, key, ca, junk = (tmp_path / name for name in ("cert", "key", "ca", "junk"))
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(ca))
    junk.write_text("junk")
    pair = {"FETCHBOX_SECURITY_TLS_CERT_FILE": cert, "FETCHBOX_SECURITY_TLS_KEY_FILE": key}
    own = "FETCHBOX_SECURITY_TLS_CLIENT_CA_FILE"
    assert wrong(**pair, **{own: ca}) == set()
    assert wrong(**pair, **{own: junk}) == {"security.tls.client_ca_file"}
    assert wrong(**pair, **{own: tmp_path / "none"}) == {"security.tls.client_ca_file"}
    assert wrong(**{**pair, "FETCHBOX_SECURITY_TLS_KEY_FILE": tmp_path}) == {"security.tls.key_file"}
    assert wrong(**{**pair, "FETCHBOX_SECURITY_TLS_CERT_FILE": junk}) == {"security.tls"}
    other.private_key_pem.write_to_path(str(key))
    assert wrong(**pair) == {"security.tls"}
    redis = {"FETCHBOX_REDIS_TLS": "true", "FETCHBOX_REDIS_TLS_CA_FILE": tmp_path / "none"}
    assert wrong(**redis) == {"redis.tls_ca_file"}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("PRODUCER_SCAN_DIR", "producer.scan_dir"),
        ("FETCHBOX_WORKER_FILE_ROOTS", "worker.file_roots[0]"),
        ("FETCHBOX_FLOW_ENGINE_ARCHIVE_DIR", "flow_engine.archive_dir"),
    ],
)
def test_a_directory_that_is_a_file_is_named(tmp_path: Path, name: str, key: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert wrong(**{name: file}) == {key}
    assert wrong(**{name: tmp_path}) == set()
    assert wrong(**{name: "x" * 5000}) == {key}
