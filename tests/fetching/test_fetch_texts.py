"""What servers say is recorded as text that is valid, visible and bounded."""

import pytest

from kernel.foreign_text import LONGEST, LONGEST_ALL, visible
from tests.fetching.origin import answer, redirect
from tests.fetching.world import World

ESCAPES = b"\x1b[2J\x9b31m"


@pytest.mark.parametrize(
    ("phrase", "shown"),
    [
        (b"Non trouv\xe9", "Non trouvé"),
        ("找不到".encode(), "找不到"),
        (b"\xcd\xe5 \xed\xe0\xe9\xe4\xe5\xed\xee", "Íå íàéäåíî"),
        (b"\xff\xfe\xe9", "ÿþé"),
        (b"a\x1b[2Jb", "a\\x1b[2Jb"),
        (b"a\xc2\x9b31mb", "a\\x9b31mb"),
        ("\u202egnp".encode(), "\\u202egnp"),
        (b"x" * 60_000, "xxx"),
    ],
    ids=["latin", "utf-8", "cp1251", "no-text", "escape", "c1", "turned", "long"],
)
async def test_reason_phrases(world: World, phrase: bytes, shown: str) -> None:
    world.origin.default = b"HTTP/1.1 404 " + phrase + b"\r\nContent-Length: 0\r\n\r\n"
    failure = await world.fails()
    if failure.code == "DOWNLOAD_PROTOCOL":  # the parser refuses some control characters, and quotes them
        assert b"\x1b" in phrase
    else:
        assert failure.code == "DOWNLOAD_HTTP_404"
        assert shown in failure.message
    assert visible(failure.message) == failure.message
    assert len(failure.message) <= LONGEST


async def test_fields_of_answers(world: World) -> None:
    long = b"q" * 60_000
    world.origin.default = answer(
        b"fine",
        b"Content-Type: text/plain; x=" + long,
        b"Content-Disposition: attachment; filename=\xe9\x9b" + long,
        b"Content-Encoding: x\xe9\x9b, " + long,
    )
    fetched = await world.fetch()
    recorded = {**fetched.provenance(), "type": fetched.content_type, "url": fetched.final_url}
    assert sum(map(len, recorded.values())) <= LONGEST_ALL
    assert all(visible(text) == text for text in recorded.values())


async def test_redirects_with_long_urls(world: World) -> None:
    world.settings().max_redirects = 40
    for number in range(40):
        world.origin.on(f"/{number}", redirect(f"/{number + 1}?" + "x" * 60_000))
    world.origin.on("/40", answer(b"fine"))
    fetched = await world.fetch("/0")
    assert len(fetched.final_url) <= LONGEST
    assert sum(map(len, fetched.hops)) <= LONGEST_ALL
    assert len(fetched.provenance()["hops"]) <= 2 * LONGEST_ALL
    world.origin.on("/40", answer(b"", status="404 Not Found"))
    failure = await world.fails("/0", resource_id="r2")
    assert len(str(failure.facts["final_url"])) <= LONGEST
    world.settings().max_redirects = 3
    failure = await world.fails("/0", resource_id="r2", fetcher=await world.new_fetcher())
    assert failure.code == "DOWNLOAD_TOO_MANY_REDIRECTS"
    assert len(failure.message) <= LONGEST


TAGS = {
    "sha256": "x",
    "final-url": "mine",
    "ü": "é",
    "Ü": "other case",
    "Author": "A",
    "author": "a",
    "a b": "blank",
    "a-b": "dash",
    "content-type": "t",
    "tag-sha256": "y",
    "100%": "per cent",
    "proxy": "none of ours",
}


async def test_every_tag_is_kept_whatever_its_name(world: World) -> None:
    world.origin.default = answer(b"fine")
    fetched = await world.fetch(tags=TAGS)
    info = await world.objects.head(fetched.bucket, fetched.key)
    assert info is not None
    kept = info.metadata
    assert kept["sha256"] == fetched.sha256
    assert kept["final-url"] == fetched.final_url
    assert sorted(TAGS.values()) == sorted(value for value in kept.values() if value in TAGS.values())
    assert {"a b": "blank", "a-b": "dash", "ü": "é", "author": "a"}.items() <= kept.items()


async def test_tags_that_do_not_fit_are_counted(world: World) -> None:
    world.origin.default = answer(b"fine")
    fetched = await world.fetch(tags={f"t{number}": "v" * 400 for number in range(9)})
    info = await world.objects.head(fetched.bucket, fetched.key)
    assert info is not None
    own = [name for name in info.metadata if name.startswith("t")]
    assert len(own) + int(info.metadata["fetchbox-left-out"]) == 9
