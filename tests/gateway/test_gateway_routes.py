"""Which route a request finds, and which rules are refused when the gateway starts."""

from pathlib import Path

import pytest
from google.protobuf.descriptor_pool import DescriptorPool

from gateway.bootstrap import services_of, upstream_names
from gateway.routes import RouteError, Router, routes_of
from tests.gateway.support import Rule, add_service

RULES = (
    Rule("Get", {"get": "/v1/jobs/{name}"}),
    Rule("Latest", {"get": "/v1/jobs/latest"}),
    Rule("List", {"get": "/v1/jobs"}),
    Rule("Create", {"post": "/v1/jobs", "body": "*"}),
    Rule("Delete", {"delete": "/v1/jobs/{name}"}),
    Rule("Cancel", {"post": "/v1/jobs/{name}:cancel", "body": "*"}),
    Rule("Deep", {"get": "/v1/files/{name=**}"}),
    Rule("Undelete", {"post": "/v1/{name=files/**}:undelete", "body": "*"}),
    Rule("A", {"get": "/c/*/d/e"}),
    Rule("B", {"get": "/c/f/{name}/g"}),
    Rule("Root", {"get": "/"}),
)


@pytest.fixture
def router(pool: DescriptorPool) -> Router:
    return Router(routes_of(add_service(pool, RULES)))


@pytest.mark.parametrize(
    ("method", "path", "rpc", "values"),
    [
        ("GET", "/v1/jobs/abc", "Get", ["abc"]),
        ("GET", "/v1/jobs/latest", "Latest", []),
        ("GET", "/v1/jobs/..", "Get", [".."]),
        ("GET", "/v1/jobs/a%2Fb", "Get", ["a%2Fb"]),
        ("GET", "/v1/jobs/urn:job:1", "Get", ["urn:job:1"]),
        ("POST", "/v1/jobs/a:b:cancel", "Cancel", ["a:b"]),
        ("GET", "/v1/jobs/a:cancel", "Get", ["a:cancel"]),
        ("GET", "/v1/files", "Deep", [""]),
        ("GET", "/v1/files/a/b:c", "Deep", ["a/b:c"]),
        ("POST", "/v1/files/a/b:undelete", "Undelete", ["files/a/b"]),
        ("GET", "/c/f/d/e", "A", []),  # the literal branch fails at its end: the matcher must come back
        ("GET", "/c/f/x/g", "B", ["x"]),
        ("GET", "/", "Root", []),
    ],
)
def test_the_most_specific_route_is_found(router: Router, method: str, path: str, rpc: str, values: list[str]) -> None:
    match = router.match(method, path)
    assert match is not None
    assert match.route.method.name == rpc
    assert [value for _, value in match.values] == values


@pytest.mark.parametrize(
    "path", ["/v1", "/V1/jobs", "/v1/jobs/", "/v1//jobs", "/v1/jobs/a/b", "", "jobs", "/v1/jobs/:"]
)
def test_other_paths_have_none(router: Router, path: str) -> None:
    if path == "/v1/jobs/:":
        path = "/v1/jobs/:cancel"  # the variable would be empty
        assert router.match("POST", path) is None
        return
    assert router.match("GET", path) is None


@pytest.mark.req("R001-1.01")
def test_a_known_path_tells_its_methods(router: Router) -> None:
    assert router.match("PUT", "/v1/jobs/abc") is None
    assert set(router.allowed("/v1/jobs/abc")) == {"GET", "DELETE"}
    assert set(router.allowed("/v1/jobs")) == {"GET", "POST"}
    assert router.allowed("/v1/nothing") == []


def test_a_path_of_many_segments_is_matched_without_recursion(router: Router) -> None:
    path = "/v1/files" + "/a" * 64_000
    assert router.match("GET", path) is not None
    assert router.match("GET", "/v1/jobs" + "/" * 64_000) is None


@pytest.mark.parametrize(
    "http",
    [
        {"get": "/v1/{nope}"},
        {"get": "/v1/{inner}"},
        {"get": "/v1/{tags}"},
        {"get": "/v1/{counts}"},
        {"get": "/v1/{at}"},
        {"get": "/v1/{inners.text}"},
        {"post": "/v1/x", "body": "inner.inner"},
        {"get": "/v1/x", "response_body": "nope"},
        {"get": "no-slash"},
        {},
    ],
)
def test_a_rule_that_cannot_be_served_ends_the_start(pool: DescriptorPool, http: dict[str, str]) -> None:
    with pytest.raises(RouteError):
        Router(routes_of(add_service(pool, [Rule("M", http)])))


def test_two_routes_of_one_shape_end_the_start(pool: DescriptorPool) -> None:
    rules = [Rule("M", {"get": "/v1/jobs/{name}"}), Rule("N", {"get": "/v1/jobs/{some_text}"})]
    with pytest.raises(RouteError, match="share"):
        Router(routes_of(add_service(pool, rules)))


def test_every_rpc_of_ours_with_a_rule_has_a_route() -> None:
    services = [service for name in upstream_names() for service in services_of(name)]
    router = Router(route for service in services for route in routes_of(service))
    methods = {method.full_name for service in services for method in service.methods}
    assert {route.method.full_name for route in router.routes} == methods


def test_no_path_is_written_by_hand() -> None:
    """A prefix of any route of ours in the gateway's source would be one."""
    services = [service for name in upstream_names() for service in services_of(name)]
    patterns = {route.pattern for service in services for route in routes_of(service)}
    heads = {f'"/{pattern.split("/")[1].split(":")[0]}' for pattern in patterns}
    for path in (Path(__file__).parents[2] / "gateway").glob("*.py"):
        text = path.read_text()
        assert not [head for head in heads if head in text], path
