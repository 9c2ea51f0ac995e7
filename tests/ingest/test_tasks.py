"""The short way of building tasks makes what the long way makes, and packed tasks come back as they were."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import JobType, Proxy, Storage
from fetchbox.jobs.jobs_pb2 import DownloadTask
from ingest_svc import hints
from ingest_svc.tasks import is_stock, pack, stock_tasks, unpack
from kernel.handlers import DefaultHandler, Manifest, Resource, plan_tasks
from tests.examples import most
from tests.ingest import handlers

words = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
names = st.text(alphabet="abcXYZ-", min_size=1, max_size=4)
resources = st.lists(
    st.builds(
        Resource,
        id=words.filter(bool),
        url=words,
        headers=st.dictionaries(names, words, max_size=3),
        tags=st.dictionaries(words | st.sampled_from(["content_type", "checksum_hint"]), words, max_size=4),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda resource: resource.id,
)
types = st.builds(
    JobType,
    default_headers=st.dictionaries(names, words, max_size=3),
    proxy=st.builds(Proxy, primary=words, fallbacks=st.lists(words, max_size=2)),
    storage=st.builds(Storage, bucket=words, key_prefix=words),
)


@given(resources, types)
@settings(deadline=None, max_examples=most(200))
async def test_stock_tasks_are_those_of_the_default_handler(found: list[Resource], settings_: JobType) -> None:
    view = Manifest("job", "gallery", tuple(found), settings_, "tenant", "a" * 32, "s3://bucket/key")
    handler = DefaultHandler({})

    short = [DownloadTask.FromString(task) for task in stock_tasks(handler, view)]
    long = await plan_tasks(handler, view)

    for task in (*short, *long):
        # The default headers are a map, and maps have no order.
        task.headers.sort(key=lambda header: header.name)
    assert short == long


def test_only_untouched_handlers_take_the_short_way() -> None:
    assert is_stock(DefaultHandler({}))
    for kind in (handlers.Counting, handlers.Changing, handlers.Refusing, handlers.Broken):
        assert not is_stock(kind({}))


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_packed_tasks_come_back(tasks: list[bytes]) -> None:
    assert unpack(pack(tasks)) == tasks


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4))
def test_cut_off_pack_is_noticed(tasks: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"cut off|no length"):
        unpack(pack(tasks)[:-1])


def test_pack_is_what_protobuf_calls_length_delimited() -> None:
    assert pack([b"a" * 300, b""]) == b"\xac\x02" + b"a" * 300 + b"\x00"


@pytest.mark.req("R001-1.32")
@pytest.mark.parametrize(
    ("hint", "good"),
    [
        ("sha256:" + "aB" * 32, True),
        ("SHA512:" + "0" * 128, True),
        ("sha1:" + "0" * 40, True),
        ("md5:" + "0" * 32, True),
        ("sha256:deadbeef", False),
        ("sha256:" + "g" * 64, False),
        ("sha256:" + "٣" * 64, False),
        ("sha3:" + "0" * 64, False),
        ("deadbeef", False),
        (":", False),
    ],
)
def test_checksum_hints(hint: str, good: bool) -> None:
    assert (hints.fault(hint) == "") is good
