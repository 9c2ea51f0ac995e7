"""The operator service as REST, through the real gateway."""

from collections.abc import Mapping
from typing import Any

import aiohttp


class Rest:
    """A client of the gateway."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """Status and body of a GET."""
        async with self._session.get(path, params=params) as answer:
            return answer.status, await answer.json(content_type=None)

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Status and body of a POST."""
        async with self._session.post(path, json=body) as answer:
            return answer.status, await answer.json(content_type=None)
