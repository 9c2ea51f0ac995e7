"""The arrow rule of the house: imports only point up the list of layers, and connections are made in one place."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("ingest_svc", "operator_svc", "pipeline", "producer_svc", "worker_svc")
ALLOWED = {
    "kernel": {"kernel"},
    "flows": {"flows", "kernel"},
    **{service: {service, "flows", "kernel"} for service in SERVICES},
    "gateway": {"gateway", "kernel"},
    "cli": {"cli", "flows", "gateway", "kernel", *SERVICES},
}
ROOMS = (
    *(
        "kernel",
        "kernel.redaction",
        "kernel.redis",
        "kernel.config",
        "kernel.telemetry",
        "kernel.rpc",
        "kernel.objects",
    ),
    *("kernel.breakers", "kernel.handlers", "kernel.isolation", "kernel.service", "kernel.log", "kernel.ledger"),
    *("kernel.watch", "kernel.queue.work", "kernel.queue.streams", "kernel.queue.files", "kernel.queue"),
    *("flows.model", "flows.definitions", "flows.journal", "flows.publishing", "flows.gates", "flows.engine"),
    "flows.tails",
)
"""The rooms of kernel and flows, from the ground up; `kernel` are its loose files."""
LOOSE = 2
STORAGE = ("redis", "boto3", "botocore", "obstore", "hiredis", "valkey")
GATEWAY_KERNEL = {
    "auth",
    "clock",
    "config",
    "decompress",
    "durations",
    "errors",
    "ids",
    "json_count",
    "offload",
    "service",
    "telemetry",
    "validation",
}


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def _imports(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _room(module: str) -> str:
    """The room of a module: the longest name in the table that it begins with, `kernel` for a loose file."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in ROOMS and (name != "kernel" or len(parts) <= LOOSE):
            return name
    return ""


@cache
def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_stands_above_it(package: str) -> None:
    for path in _files(package):
        own = {name.split(".")[0] for name in _imports(path)} & set(ALLOWED)
        assert own <= ALLOWED[package], f"{path} imports {own - ALLOWED[package]}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_stands_below_it(room: str) -> None:
    above = set(ROOMS[ROOMS.index(room) + 1 :])
    for package in ("kernel", "flows"):
        for path in _files(package):
            if _room(_module(path)) == room:
                found = {name for name in _imports(path) if _room(name) in above and name not in ("kernel", "flows")}
                assert not found, f"{path} imports {found}"


def test_every_module_is_in_a_room_that_the_table_names() -> None:
    for package in ("kernel", "flows"):
        for path in _files(package):
            assert _module(path) in ("kernel", "flows") or _room(_module(path)), f"{path} is in no room of the table"


def test_a_room_says_what_it_is_for() -> None:
    for package in ("kernel", "flows"):
        for path in (ROOT / package).rglob("__init__.py"):
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} does not say what its room is for"


@pytest.mark.parametrize("package", sorted(set(ALLOWED) - {"kernel"}))
def test_only_the_kernel_imports_a_storage_client(package: str) -> None:
    for path in _files(package):
        roots = {name.split(".")[0] for name in _imports(path)}
        assert not roots & set(STORAGE), f"{path} imports {roots & set(STORAGE)}"


def test_the_gateway_touches_no_storage_of_the_kernel() -> None:
    for path in _files("gateway"):
        used = {name.split(".")[1] for name in _imports(path) if name.startswith("kernel.")}
        assert used <= GATEWAY_KERNEL, f"{path} imports {used - GATEWAY_KERNEL} of the kernel"


@pytest.mark.req("R003-1.03", "R003-1.3.02", "R003-1.3.03", "R003-6.01")
def test_events_go_over_one_bus_through_the_event_manager_and_from_there_into_the_store() -> None:
    paths = [path for package in ALLOWED for path in _files(package)]

    def users(name: str) -> set[str]:
        return {str(path.relative_to(ROOT)) for path in paths if f"flows.{name}" in _imports(path)}

    assert users("publishing.bus.Message") == {"flows/publishing/manager.py", "flows/publishing/wiring.py"}
    adapters = ("publishing/wiring", "journal/redis_journal", "journal/log_journal")
    assert users("journal.journal.Append") == {f"flows/{name}.py" for name in adapters}
    assert users("publishing.bus.internal_bus") == {"ingest_svc/flow_bootstrap.py", "worker_svc/bootstrap.py"}
    assert [path.name for path in paths if "InternalBus(" in path.read_text()] == ["bus.py"]


def test_no_file_but_keys_spells_a_redis_key() -> None:
    prefixes = ("job:", "fetchbox.jobs.", "fetchbox:", "idempotency:", "nq:")
    for package in ALLOWED:
        for path in _files(package):
            if path == ROOT / "kernel" / "redis" / "keys.py":
                continue
            strings = (node.value for node in _nodes(path) if isinstance(node, ast.Constant))
            docs = _docstrings(path)
            stray = [s for s in strings if isinstance(s, str) and s.startswith(prefixes) and s not in docs]
            assert not stray, f"{path} spells {stray}: use kernel.redis.keys"


def _docstrings(path: Path) -> set[str]:
    nodes = _nodes(path)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {ast.get_docstring(node, clean=False) or "" for node in nodes if isinstance(node, kinds)}
