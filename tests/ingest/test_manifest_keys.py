"""Keys of a document that no field has, however odd: each is named, none is a fault of ours."""

import pytest

from ingest_svc.manifest import DOCUMENT, read_members
from ingest_svc.strict_json import members


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (rb'{"\ud800": 1}', "?"),
        (rb'{"resources": [{"\udfff": 1}]}', "resources[0].?"),
        (rb'{"resources": [{"headers": {"\ud800": "1"}}]}', "resources[0].headers.?"),
        (rb'{"\u0000": 1}', "\x00"),
        (rb'{"": 1}', ""),
    ],
)
def test_an_odd_key_is_named(document: bytes, path: str) -> None:
    faults = read_members(members(document, DOCUMENT)).faults
    assert [fault.field for fault in faults] == [path]
    assert faults[0].rule in {"json.unknown_key", "json.surrogate"}
