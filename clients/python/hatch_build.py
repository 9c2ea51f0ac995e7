"""Puts the stubs of gen/ into the distributions, so that no copy of them is kept in git.

They land in `fetchbox_client/_gen`, which a `.pth` file adds to the end of Python's path. So `fetchbox.*` and
`buf.validate` are imported as they are, and no file belongs to two distributions. Where FetchBox itself is installed
too, its stubs come first.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("errors", "flow", "gateway", "ingest", "jobs", "operator", "task", "worker")
"""All of `fetchbox` but the configuration of the servers."""
STUBS = "src/fetchbox_client/_gen"


class StubsHook(BuildHookInterface[Any]):
    """Adds the stubs: those of the repository, or in a source distribution those that it came with."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # as hatchling calls it
        """Maps each file to its place in the distribution."""
        root = Path(self.root)
        repository = root.parents[1]
        found = repository / "gen" if (repository / "gen/fetchbox").is_dir() else root / STUBS
        if not (found / "fetchbox/task").is_dir():
            raise FileNotFoundError(f"{found} has no stubs: build in the repository, or from a source distribution")
        in_wheel = self.target_name == "wheel"
        place = "fetchbox_client/_gen" if in_wheel else STUBS
        names = [*(f"fetchbox/{name}" for name in PACKAGES), "buf/validate"]
        files = (path for name in names for path in sorted((found / name).rglob("*.py*")) if path.suffix != ".pyc")
        include = {str(path): f"{place}/{path.relative_to(found)}" for path in files}
        if in_wheel:
            include[str(root / "fetchbox_client.pth")] = "fetchbox_client.pth"
            include[str(root / "py.typed")] = f"{place}/fetchbox/py.typed"
        licence = next(path for path in (root / "LICENSE", repository / "LICENSE") if path.exists())
        include[str(licence)] = "fetchbox_client/LICENSE" if in_wheel else "LICENSE"
        build_data["force_include"].update(include)
