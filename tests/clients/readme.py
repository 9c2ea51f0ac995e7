"""The code of a client's README, led to the tests' platform."""

import re
from pathlib import Path

from cli.local import LocalPlatform
from tests.clients.conftest import OPERATOR


def blocks(readme: Path, language: str, platform: LocalPlatform, page: str) -> list[str]:
    """Each block of the language, as it is but for addresses, token and the page that is fetched."""
    config = platform.config
    found = re.findall(rf"```{language}\n(.*?)```", readme.read_text(), re.DOTALL)
    assert found
    ingest, operator = config.ingest.listen, config.operator.listen
    places = {
        '"127.0.0.1:50051", operator="127.0.0.1:50053")': f'"{ingest}", operator="{operator}", token="{OPERATOR}")',
        '"127.0.0.1:50051")': f'"{ingest}", token="{OPERATOR}")',
        '"http://127.0.0.1:8080")': f'"http://{config.gateway.listen}", {{ token: "{OPERATOR}" }})',
        '"https://example.com/"': f'"{page}"',
    }
    for said, meant in places.items():
        found = [block.replace(said, meant) for block in found]
    assert not [block for block in found if re.search(r"127\.0\.0\.1:(?:8080|50051)", block)]
    return found
