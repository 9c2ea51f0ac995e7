"""Keys and metadata: limits, escapes, and that nothing collides or climbs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.errors import FetchboxError
from kernel.ids import key_segment
from kernel.objects import metadata, object_key, parse_uri, s3_uri

_SEGMENT = st.text(st.characters(exclude_characters="/\\", exclude_categories=("Cc", "Cs")), min_size=1, max_size=400)
_KEY = st.lists(_SEGMENT.filter(lambda s: s not in {".", ".."}), min_size=1, max_size=8).map("/".join)


@given(_KEY)
def test_every_key_fits_both_limits_and_is_stable(key: str) -> None:
    short = object_key(key)
    assert len(short.encode()) <= 1024
    assert all(0 < len(segment.encode()) <= 255 for segment in short.split("/"))
    assert object_key(short) == short


@given(_KEY)
def test_a_key_that_fits_is_its_own(key: str) -> None:
    if len(key.encode()) <= 1024 and all(len(segment.encode()) <= 255 for segment in key.split("/")):
        assert object_key(key) == key


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=128))
def test_any_resource_id_makes_a_key_that_never_breaks_an_escape(resource_id: str) -> None:
    segment = object_key(f"resources/t/j/{key_segment(resource_id)}").rpartition("/")[2]
    head = segment.partition("~")[0] if len(key_segment(resource_id)) > 255 else segment
    assert head.count("%") == sum(1 for i, c in enumerate(head) if c == "%" and len(head[i + 1 : i + 3]) == 2)


def test_long_keys_that_share_a_beginning_stay_apart() -> None:
    keys = {object_key(f"a/{'x' * 300}{n}") for n in range(100)} | {
        object_key("/".join(["y" * 250] * 5) + f"/{n}") for n in range(100)
    }
    assert len(keys) == 200


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", "./a", "a\x00b", "a\nb", "a\\b", ".."])
def test_keys_that_climb_or_are_read_differently_elsewhere_are_refused(key: str) -> None:
    with pytest.raises(FetchboxError, match="INVALID_PAYLOAD"):
        object_key(key)


@pytest.mark.req("R001-1.56")
def test_addresses() -> None:
    uri = s3_uri("fetchbox", "manifests/gallery/01HX/metadata.json")
    assert uri == "s3://fetchbox/manifests/gallery/01HX/metadata.json"
    assert parse_uri(uri) == ("fetchbox", "manifests/gallery/01HX/metadata.json")
    for bad in ("http://a/b", "s3://", "s3://a", "s3:///k", "s3://a/"):
        with pytest.raises(FetchboxError):
            parse_uri(bad)


_TAGS = st.dictionaries(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
    max_size=30,
)


@given(_TAGS)
def test_metadata_is_ascii_and_within_two_kilobytes(tags: dict[str, str]) -> None:
    encoded = metadata.encode(tags)
    assert sum(len(name) + len(value) for name, value in encoded.items()) <= 2048
    for name, value in encoded.items():
        assert name.isascii()
        assert name == name.lower()
        assert value.isascii()
        assert all(c.isprintable() for c in value)
        assert value == value.strip()


@given(_TAGS)
def test_metadata_comes_back_or_is_counted(tags: dict[str, str]) -> None:
    tags = {name.lower(): value for name, value in tags.items() if value}
    decoded = metadata.decode(metadata.encode(tags))
    left_out = int(decoded.pop(metadata.LEFT_OUT, "0"))
    assert len(decoded) == len({name.lower() for name in tags}) - left_out
    assert decoded.items() <= {name.lower(): value for name, value in tags.items()}.items()
