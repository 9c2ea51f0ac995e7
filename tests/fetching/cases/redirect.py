"""Redirects: where they lead, what they carry, and how their `Location` is read."""

from tests.fetching.cases import case
from tests.fetching.origin import answer, echo, redirect
from tests.fetching.world import FixedNames, World

OK = answer(b"fine")
CREDENTIALS = [("authorization", "Bearer s3cret"), ("cookie", "a=b"), ("x-api-key", "k3y")]


@case("FC-050")
async def to_itself(world: World) -> None:
    world.origin.on("/", redirect("/"))
    outcome = await world.outcome()
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_TOO_MANY_REDIRECTS"]
    assert len(world.origin.seen) == world.settings().max_redirects + 1


@case("FC-051")
async def to_a_file(world: World) -> None:
    for location in ("file:///etc/hostname", "FILE:/etc/hostname", "ftp://h/x", "data:text/plain,x", "javascript:x"):
        world.origin.on("/", redirect(location))
        assert (await world.fails()).code == "VALIDATION_BLOCKED_SCHEME", location


@case("FC-053")
async def to_private_addresses(world: World) -> None:
    inner = await world.another_origin(host="127.0.0.2", default=OK)
    places = (
        inner.url(),
        "http://169.254.169.254/",
        f"http://[::ffff:127.0.0.2]:{inner.port}/",
        f"http://[::127.0.0.2]:{inner.port}/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://10.0.0.1/",
        "http://168.63.129.16/",
    )
    for place in places:
        world.origin.on("/", redirect(place))
        outcome = await world.outcome()
        assert [failure.code for failure in outcome.failures] == ["VALIDATION_BLOCKED_ADDRESS"], place
    world.names = FixedNames({"inner.example": "127.0.0.2"})
    world.origin.on("/", redirect(f"http://inner.example:{inner.port}/"))
    failure = await world.fails(fetcher=await world.new_fetcher())
    assert failure.code == "VALIDATION_BLOCKED_ADDRESS"
    assert inner.seen == []
    assert inner.connections == 0


@case("FC-054")
async def to_another_port(world: World) -> None:
    other = await world.another_origin(default=redirect(world.origin.url("/back")))
    world.origin.on("/", redirect("/same"))
    world.origin.on("/same", redirect(other.url("/there")))
    world.origin.on("/back", OK)
    await world.fetch(headers=[*CREDENTIALS, ("accept-language", "de")])
    same, back = world.origin.seen[1:]
    for name, value in CREDENTIALS:
        assert same.get(name) == value
        assert other.seen[0].get(name) is None
        assert back.get(name) is None, "what was dropped once does not come back"
    assert other.seen[0].get("accept-language") == "de"
    assert other.seen[0].get("host") == f"127.0.0.1:{other.port}"


@case("FC-055")
async def to_another_name(world: World) -> None:
    world.names = FixedNames({"one.example": "127.0.0.1", "two.example": "127.0.0.1"})
    world.secrets["TOKEN"] = "s3cret"
    world.declare("TOKEN", "*.example")
    world.origin.on("/", redirect(world.origin.url("/there", "two.example")))
    world.origin.on("/there", OK)
    headers = [("authorization", "Bearer a"), ("authorization", "Bearer b"), ("user-agent", "${secret:TOKEN}")]
    await world.fetch(world.origin.url("/", "one.example"), headers=headers)
    first, second = world.origin.seen
    assert first.all("authorization") == ["Bearer a", "Bearer b"]
    assert first.get("user-agent") == "s3cret"
    assert second.all("authorization") == []
    assert "s3cret" not in second.head.decode()


@case("FC-058")
async def credentials_in_the_location(world: World) -> None:
    place = world.origin.url("/there").replace("http://", "http://user:p4ss@")
    world.origin.on("/", redirect(place))
    world.origin.on("/there", redirect("/end"))
    world.origin.on("/end", OK)
    fetched = await world.fetch(headers=[("x-api-key", "k3y")])
    assert world.origin.seen[-1].get("authorization") is None
    assert world.origin.seen[-1].get("x-api-key") == "k3y"
    assert "p4ss" not in repr(fetched)
    assert "p4ss" not in str(world.metadata()["Metadata"])
    world.origin.on("/end", answer(b"", status="404 Not Found"))
    failure = await world.fails(resource_id="r2")
    assert "p4ss" not in f"{failure} {failure.facts}"


@case("FC-059")
async def latin_1(world: World) -> None:
    world.origin.default = echo
    world.origin.on("/", redirect(b"/caf\xe9"))
    await world.fetch()
    assert world.origin.targets[-1] == "/caf%E9"


@case("FC-060")
async def utf_8_and_spaces(world: World) -> None:
    world.origin.default = echo
    world.origin.on("/one", redirect("/café".encode()))
    world.origin.on("/two", redirect("/sp ace?q=a b"))
    await world.fetch("/one")
    assert world.origin.targets[-1] == "/caf%C3%A9"
    await world.fetch("/two")
    assert world.origin.targets[-1] == "/sp%20ace?q=a%20b"


@case("FC-061")
async def signed(world: World) -> None:
    world.origin.default = echo
    world.origin.on("/", redirect("/a%2Fb%27c%20d?x=%2F%26&s=%28%29"))
    await world.fetch()
    assert world.origin.targets[-1] == "/a%2Fb%27c%20d?x=%2F%26&s=%28%29"


@case("FC-062")
async def nowhere(world: World) -> None:
    nowhere = (
        answer(b"", status="302 Found"),
        redirect(""),
        redirect("/x", status="300 Multiple Choices"),
        redirect("///host/path"),
        redirect("http:///x"),
        redirect("http://:80/"),
        redirect("http://h:0/"),
        redirect(b"/a\x01b"),
    )
    for answered in nowhere:
        world.origin.on("/", answered)
        outcome = await world.outcome()
        assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_BAD_REDIRECT"], answered


@case("FC-064")
async def two_locations(world: World) -> None:
    world.origin.default = echo
    world.origin.on("/", answer(b"", "Location: /first", "Location: /second", status="302 Found"))
    await world.fetch()
    assert world.origin.targets[-1] == "/first"


@case("FC-065")
async def relative(world: World) -> None:
    world.origin.default = echo
    here = f"127.0.0.1:{world.origin.port}"
    for location, expected in (
        ("leaf", "/dir/leaf"),
        ("../up?x", "/up?x"),
        (f"//{here}/slashes", "/slashes"),
        ("?q=1", "/dir/page?q=1"),
        ("/end#frag", "/end"),
    ):
        world.origin.on("/dir/page", redirect(location), echo)
        await world.fetch("/dir/page?old=1")
        assert world.origin.targets[-1] == expected
    assert not any("#" in target for target in world.origin.targets)
