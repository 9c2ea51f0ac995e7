"""What is stored is what was meant: bytes counted, digests matched and named, types held against what was said."""

import gzip
import hashlib

import pytest

from kernel.objects import ObjectStore
from tests.fetching.cases.sink import Front
from tests.fetching.origin import answer, then_close
from tests.fetching.world import World
from worker_svc.fetch import FetchFailure

TEXT = b"some text of a resource\n" * 400
PACKED = gzip.compress(TEXT)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(600)
PAGE = b"<!doctype html><html><title>sign in</title></html>"


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
@pytest.mark.parametrize("matched", ["wire", "decoded"])
async def test_a_hint_matches_wire_or_decoded_bytes_and_the_record_says_which(
    world: World, algorithm: str, matched: str
) -> None:
    world.origin.default = answer(PACKED, "Content-Encoding: gzip")
    digest = hashlib.new(algorithm, PACKED if matched == "wire" else TEXT).hexdigest()
    fetched = await world.fetch(hint=f"{algorithm}:{digest}")
    assert fetched.provenance()["checksum"] == matched
    kept = world.metadata()["Metadata"]
    assert (kept["checksum"], kept["sha256"]) == (matched, hashlib.sha256(PACKED).hexdigest())
    wrong = f"{algorithm}:{'0' * len(digest)}"
    assert (await world.fails(hint=wrong, resource_id="r2")).code == "DOWNLOAD_CHECKSUM_MISMATCH"


@pytest.mark.parametrize("size", [4000, 9 << 20])
async def test_a_wrong_digest_leaves_the_former_object_as_it_was(world: World, size: int) -> None:
    world.origin.on("/", answer(b"former"), answer(bytes(size)))
    await world.fetch()
    with pytest.raises(FetchFailure, match="DOWNLOAD_CHECKSUM_MISMATCH"):
        await world.fetch(hint=f"md5:{'0' * 32}")
    assert world.body() == b"former"
    assert world.open_uploads() == []


async def test_wire_bytes_are_counted_where_a_body_was_begun_anew(world: World) -> None:
    cut = then_close(answer(TEXT[:4000], 'ETag: "v1"', "Accept-Ranges: bytes", length=len(TEXT)))
    world.origin.on("/", cut, answer(b"", status="500 Oops"), answer(TEXT))
    fetched = await world.fetch()
    assert (fetched.size, fetched.wire_length) == (len(TEXT), len(TEXT) + 4000)
    assert fetched.provenance()["wire_length"] == str(len(TEXT) + 4000)


@pytest.mark.parametrize("size", [4000, 9 << 20])
async def test_a_store_that_is_busy_costs_the_origin_nothing(world: World, size: int) -> None:
    world.origin.default = answer(bytes(size))
    front = Front(world.config.object_store.endpoint, busy=2)
    objects: ObjectStore = await front.serve(world)
    fetched = await world.fetch(fetcher=await world.new_fetcher(objects=objects))
    assert (fetched.size, len(world.origin.seen)) == (size, 1)


CHECKS = {
    # policy, tag, Content-Type, body: code or flags
    "hinted": ("", "image/png", "text/html", PAGE, "DOWNLOAD_TYPE_MISMATCH"),
    "not-hinted": ("hint", "", "image/png", PAGE, ()),
    "declared": ("declared", "", "image/png", PAGE, "DOWNLOAD_TYPE_MISMATCH"),
    "declared-and-hinted": ("declared", "text/html", "image/png", PAGE, "DOWNLOAD_TYPE_MISMATCH"),
    "declared-right": ("declared", "image/png", "image/png; x=y", PNG, ()),
    "declared-nothing": ("declared", "", "application/octet-stream", PAGE, ("type_differs",)),
    "declared-no-type": ("declared", "", ";;", PAGE, ()),
    "of-its-kind": ("declared", "", "image/jpeg", PNG, ("type_differs",)),
    "off": ("off", "image/png", "image/png", PAGE, ("type_differs",)),
}


@pytest.mark.parametrize("name", CHECKS)
async def test_the_type_is_held_against_what_the_policy_names(world: World, name: str) -> None:
    policy, tag, declared, body, expected = CHECKS[name]
    world.job_type().type_check = policy
    world.origin.default = answer(body, f"Content-Type: {declared}")
    if isinstance(expected, str):
        assert (await world.fails(mime=tag)).code == expected
    else:
        assert (await world.fetch(mime=tag)).flags == expected
