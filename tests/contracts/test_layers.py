"""The arrow rule of the house: imports only point up the list of layers, and connections are made in one place."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "kernel": {"kernel"},
    "ingest_svc": {"ingest_svc", "kernel"},
    "worker_svc": {"worker_svc", "kernel"},
    "operator_svc": {"operator_svc", "kernel"},
    "producer_svc": {"producer_svc", "kernel"},
    "pipeline": {"kernel", "pipeline"},
    "gateway": {"gateway", "kernel"},
    "cli": {"cli", "gateway", "ingest_svc", "kernel", "operator_svc", "pipeline", "producer_svc", "worker_svc"},
}
STORAGE = ("redis", "boto3", "botocore", "obstore", "hiredis", "valkey")
GATEWAY_KERNEL = {
    "auth",
    "clock",
    "config",
    "decompress",
    "errors",
    "ids",
    "json_count",
    "offload",
    "service",
    "telemetry",
    "validation",
}


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_stands_above_it(package: str) -> None:
    for path in _files(package):
        own = {name.split(".")[0] for name in _imports(path)} & set(ALLOWED)
        assert own <= ALLOWED[package], f"{path} imports {own - ALLOWED[package]}"


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
        return {str(path.relative_to(ROOT)) for path in paths if f"kernel.flows.{name}" in _imports(path)}

    assert users("bus.Message") == {"kernel/flows/manager.py", "kernel/flows/wiring.py"}
    assert users("journal.Append") == {f"kernel/flows/{name}.py" for name in ("wiring", "redis_journal", "log_journal")}
    assert users("bus.internal_bus") == {"ingest_svc/flow_bootstrap.py", "worker_svc/bootstrap.py"}
    assert [path.name for path in paths if "InternalBus(" in path.read_text()] == ["bus.py"]


def test_no_file_but_keys_spells_a_redis_key() -> None:
    prefixes = ("job:", "fetchbox.jobs.", "fetchbox:", "idempotency:", "nq:")
    for package in ALLOWED:
        for path in _files(package):
            if path == ROOT / "kernel" / "keys.py":
                continue
            strings = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
            docs = _docstrings(path)
            stray = [s for s in strings if isinstance(s, str) and s.startswith(prefixes) and s not in docs]
            assert not stray, f"{path} spells {stray}: use kernel.keys"


def _docstrings(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {ast.get_docstring(node, clean=False) or "" for node in nodes if isinstance(node, kinds)}
