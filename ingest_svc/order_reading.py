"""Many requests as orders, each read whatever is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.task.v1.task_service_pb2 import CreateJobRequest
from ingest_svc.secret_rules import SecretRules
from ingest_svc.task_order import HEAVY_BYTES, Sender, TaskOrder, checked, read_order
from kernel.errors import FetchboxError

_PIECE: Final = 100
Read = TaskOrder | FetchboxError


class OrderReader:
    """Reads and checks orders."""

    def __init__(self, config: Config, secrets: SecretRules) -> None:
        self._config = config
        self._secrets = secrets

    def read(self, requests: Sequence[CreateJobRequest], sender: Sender) -> list[Read]:
        """For each request the order, or what is wrong with it."""
        return [self._one(request, sender) for request in requests]

    def _one(self, request: CreateJobRequest, sender: Sender) -> Read:
        try:
            order = read_order(request, sender, self._config)
            self._secrets.require_task(order.new.task, order.new.tenant)
            return checked(order, request, self._config.tasks)
        except FetchboxError as error:
            return error


def pieces(requests: Sequence[CreateJobRequest]) -> Iterator[Sequence[CreateJobRequest]]:
    """Requests that are read in a moment: few, and of few bytes, or a single large one."""
    begin = size = 0
    for place, request in enumerate(requests):
        if place > begin and (place - begin == _PIECE or size + len(request.payload) > HEAVY_BYTES):
            yield requests[begin:place]
            begin, size = place, 0
        size += len(request.payload)
    yield requests[begin:]
