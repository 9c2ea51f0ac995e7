"""URLs as submitted: their escapes, hosts, ports and oddities."""

import pytest

from fetchbox.jobs.jobs_pb2 import DownloadTask
from tests.fetching.cases import case
from tests.fetching.origin import answer, echo
from tests.fetching.world import FixedNames, World
from worker_svc.fetch import policy_of
from worker_svc.fetch.url import parse

OK = answer(b"fine")


async def arrives(world: World, path: str) -> str:
    await world.fetch(path)
    return world.origin.targets[-1]


@case("FC-067")
async def as_submitted(world: World) -> None:
    world.origin.default = echo
    for path in ("/a%2Fb", "/a%20b", "/%E9", "/a+b?q=c+d", "/a;b?x=1;y=2"):
        assert await arrives(world, path) == path


@case("FC-068")
async def escapes_untouched(world: World) -> None:
    world.origin.default = echo
    for path in ("/a%27%28%29b?s=%28%29%27", "/?t=a%2Fb", "/~t/%7Et", "/a/../b/./c", "/x?a=%zz&b=100%"):
        assert await arrives(world, path) == path


@case("FC-069")
async def not_encoded(world: World) -> None:
    world.origin.default = echo
    assert await arrives(world, "/a b") == "/a%20b"
    assert await arrives(world, "/é") == "/%C3%A9"
    assert world.origin.seen[0].head.startswith(b"GET /a%20b HTTP/1.1\r\n")


@case("FC-071")
async def fragment_and_user(world: World) -> None:
    world.origin.default = echo
    url = world.origin.url("/x#part").replace("http://", "http://user:p4ss@")
    fetched = await world.fetch(url)
    request = world.origin.seen[0]
    assert request.target == "/x"
    assert request.get("authorization") == "Basic dXNlcjpwNHNz"
    assert "p4ss" not in repr(fetched)
    assert "p4ss" not in str(world.metadata()["Metadata"])
    world.origin.on("/x", answer(b"", status="500 Oops"))
    failure = await world.fails(url, resource_id="r2")
    assert "p4ss" not in f"{failure!r} {failure} {failure.facts}"


@case("FC-072")
async def no_urls(world: World) -> None:
    """Ingest refuses these (its own tests); a direct producer's task fails here without a connection."""
    port = world.origin.port
    for url in (
        "http://127.0.0.1:0/",
        "http://127.0.0.1:65536/",
        "http://127.0.0.1:80x/",
        "http:///x",
        "http://:80/x",
        f"http:/127.0.0.1:{port}/x",
        "just/a/path",
        "",
        "http://[::1/",
        "http://a..b/",
        "http://a%00b/",
    ):
        assert (await world.fails(f"{url}" or "x")).code == "VALIDATION_URL", url
    assert world.origin.connections == 0


@case("FC-073")
async def international_name(world: World) -> None:
    world.names = FixedNames({"xn--bcher-kva.example": "127.0.0.1"})
    world.origin.default = echo
    urls = [world.origin.url("/", host) for host in ("bücher.example", "xn--bcher-kva.example", "BÜCHER.example.")]
    for url in urls:
        await world.fetch(url)
    hosts = {str(request.get("host")).replace(".:", ":") for request in world.origin.seen}
    assert hosts == {f"xn--bcher-kva.example:{world.origin.port}"}
    assert len({parse(url).site for url in urls}) == 1


@case("FC-074")
async def underscore(world: World) -> None:
    world.names = FixedNames({"under_score.localhost": "127.0.0.1"})
    world.origin.on("/ok", OK)
    await world.fetch(world.origin.url("/ok", "under_score.localhost"))
    assert world.body() == b"fine"


@case("FC-076")
async def circled_digits(world: World) -> None:
    await refused(world, "①②⑦.0.0.1")


@case("FC-077")
async def ipv4_in_disguise(world: World) -> None:
    for host in ("127.1", "2130706433", "0177.0.0.1", "0x7f.1", "0", "127.0.0.1.", "0x7f000001", "[::ffff:7f00:1]"):
        await refused(world, host)


async def refused(world: World, host: str) -> None:
    del world.settings().allow_networks[:]
    world.origin.default = OK
    failure = await world.fails(world.origin.url("/ok", host), fetcher=await world.new_fetcher())
    assert failure.code == "VALIDATION_BLOCKED_ADDRESS", host
    assert world.origin.connections == 0


@case("FC-081")
async def injections(world: World) -> None:
    """Ingest refuses these (its own tests); a direct producer's task fails here without a connection."""
    for name, value in (("x-a", "a\r\nEvil: 1"), ("x a", "b"), ("x-a", "a\0b"), ("", "b"), ("host", "evil")):
        assert (await world.fails(headers=[(name, value)])).code == "VALIDATION_TASK", name
    for url in ("/a\r\nEvil: 1", "/a\nb", "/a\0b", "/a\tb"):
        assert (await world.fails(url)).code == "VALIDATION_URL", url
    assert world.origin.connections == 0


@case("FC-083")
async def long_url(world: World) -> None:
    world.origin.default = OK
    path = "/" + "a" * 16_384
    assert await arrives(world, path) == path
    long_id = "ü€" * 64
    fetched = await world.fetch(path, resource_id=long_id)
    assert len(fetched.key.encode()) <= 1024
    assert world.stored(fetched.key) == b"fine"
    assert (await world.fails("/" + "a" * 70_000, resource_id="r2")).code == "VALIDATION_URL"


@case("FC-084")
async def the_same_url_twice(world: World) -> None:
    world.origin.default = echo
    for accept in ("text/html", "image/png"):
        await world.fetch("/x", headers={"accept": accept}, resource_id=accept.replace("/", "-"))
    assert b"text/html" in (world.body("text-html") or b"")
    assert b"image/png" in (world.body("image-png") or b"")
    assert len(world.origin.seen) == 2
    keys = {policy_of(world.config, DownloadTask(job_id="j", resource_id=name)).key for name in ("a/b", "a%2Fb", "..")}
    assert len(keys) == 3
    with pytest.raises(ValueError, match="URL"):
        parse("x")
