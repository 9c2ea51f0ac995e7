"""A secret is looked at once more before it is sent: who wrote the task, and when, does not matter."""

import pytest

from fetchbox.config.v1.config_pb2 import Secret
from kernel.config.loading import job_type
from tests.fetching.cases.proxy import forward
from tests.fetching.origin import echo, redirect
from tests.fetching.world import FixedNames, World
from worker_svc.fetch import Fetched, FetchFailure, policy_of

VALUE = "s3cret"
HEADERS = {"x-key": "${secret:KEY}"}


@pytest.fixture(autouse=True)
def served(world: World) -> None:
    world.names = FixedNames(dict.fromkeys(("good.example", "evil.example", "127.0.0.1"), "127.0.0.1"))
    world.secrets["KEY"] = VALUE
    world.origin.default = echo


async def fetch(world: World, host: str = "good.example", *, tenant: str = "", kind: str = "default") -> Fetched:
    task = world.task(world.origin.url("/", host), headers=HEADERS)
    task.tenant, task.job_type = tenant, kind
    return await (await world.fetcher()).fetch(task, policy_of(world.config, task))


def sent(world: World) -> bool:
    return any(VALUE.encode() in request.head for request in world.origin.seen)


async def test_a_secret_is_sent_where_its_declaration_says_so(world: World) -> None:
    world.declare("KEY", "good.example", tenants=["alpha"], job_types=["default"])
    await fetch(world, tenant="alpha")
    assert sent(world)


@pytest.mark.parametrize(
    ("scope", "how"),
    [
        ({"uses": ["proxy", "task_endpoint", "webhook"]}, {}),
        ({"tenants": ["alpha"]}, {"tenant": "beta"}),
        ({"tenants": ["alpha"]}, {}),
        ({"job_types": ["web"]}, {}),
        ({"hosts": ["good.example:1"]}, {}),
        ({}, {"host": "evil.example"}),
        ({}, {"host": "127.0.0.1"}),
    ],
)
async def test_what_a_direct_producer_wrote_is_refused_before_anything_is_sent(
    world: World, scope: dict[str, list[str]], how: dict[str, str]
) -> None:
    world.config.secrets["KEY"].CopyFrom(
        Secret(**{"source": "env:KEY", "uses": ["fetch_header"], "hosts": ["good.example"], **scope})
    )
    with pytest.raises(FetchFailure) as caught:
        await fetch(world, **how)
    assert caught.value.code == "AUTH_SECRET_REFUSED"
    assert not caught.value.facts or VALUE not in str(caught.value.facts)
    assert world.origin.connections == 0


async def test_a_secret_follows_no_redirect_to_another_host(world: World) -> None:
    world.declare("KEY", "*.example")
    world.origin.on("/", redirect(world.origin.url("/there", "evil.example")))
    await fetch(world)
    first, second = world.origin.seen
    assert VALUE.encode() in first.head
    assert VALUE.encode() not in second.head


async def test_a_default_header_with_a_secret_goes_to_declared_hosts_only(world: World) -> None:
    world.declare("KEY", "good.example", tenants=["alpha"])
    kind = job_type(world.config, "default")
    assert kind is not None
    kind.default_headers["X-Key"] = HEADERS["x-key"]
    await fetch(world, tenant="alpha")
    assert sent(world)
    world.origin.seen.clear()
    for how in ({"host": "evil.example", "tenant": "alpha"}, {"tenant": "beta"}):
        fetched = await fetch(world, **how)
        assert "default_header_withheld:x-key" in fetched.flags
        assert len(world.origin.seen) == 1
        assert not sent(world)
        assert "x-key" not in world.origin.seen.pop().head.decode().lower()


async def test_a_proxy_is_given_its_secret_and_only_for_tasks_that_may_use_it(world: World) -> None:
    proxy = await world.another_origin(default=forward)
    world.config.secrets["KEY"].CopyFrom(Secret(source="env:KEY", uses=["proxy"], job_types=["default"]))
    world.config.proxies["eu"].urls.append("http://user:${secret:KEY}@127.0.0.1:" + str(proxy.port))
    await world.fetch(pools=("eu",))
    assert str(proxy.seen[0].get("proxy-authorization")) == "Basic dXNlcjpzM2NyZXQ="
    task = world.task(pools=("eu",), resource_id="r2")
    task.job_type = "web"
    with pytest.raises(FetchFailure, match="AUTH_SECRET_REFUSED"):
        await (await world.fetcher()).fetch(task, policy_of(world.config, task))
    assert len(proxy.seen) == 1
