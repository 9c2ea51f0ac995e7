"""The names of circuits: no two tuples of parts share one, and none shows a credential."""

import itertools

from kernel.breakers import names

PARTS = ["", "a", "a:b", "a%3Ab", "b", ":", "%", "*", "é", "a/b", "\ud800", "x" * 300, "x" * 301, "http://h/v1"]


def test_no_two_endpoints_and_models_share_a_name() -> None:
    urls = [*(f"http://h/{part}" for part in ("", "a", "a:b", "a%3Ab", "b", "x" * 300, "x" * 301, "v1?k=1", "v1?k=2"))]
    urls += ["http://h:8/v1", "https://h:8/v1", "http://h/v1", "http://h/v1:m", "http://[x"]
    pairs = list(itertools.product(urls, PARTS))
    assert len({names.of_endpoint(*pair) for pair in pairs}) == len(pairs)
    assert all(len(names.of_endpoint(*pair)) < 600 for pair in pairs)


def test_kinds_share_no_name() -> None:
    made = [names.of_host("x"), names.of_task("x"), names.of_queue("x"), names.of_endpoint("http://x"), "task:step.x.y"]
    assert len(set(made)) == len(made)


def test_a_name_shows_no_credential_of_the_endpoint() -> None:
    name = names.of_endpoint("https://me:hunter2@h/v1?api-key=hunter3", "m")
    assert "hunter" not in name
    assert name.startswith("endpoint:https%3A%2F%2Fh%2Fv1*")
