"""The example records of seed 003, as they stand there."""

import re
from pathlib import Path

_TEXT = (Path(__file__).parents[1] / "cases/flow_records.txt").read_text(encoding="utf-8")

_SECTION = re.compile(r"^## (.+)\n((?:(?!## ).*\n)+)", re.MULTILINE)

EXAMPLES = {name: text.strip().encode() for name, text in _SECTION.findall(_TEXT)}
"""By section and name."""
CANONICAL = [name for name in EXAMPLES if name.endswith("canonical")]
