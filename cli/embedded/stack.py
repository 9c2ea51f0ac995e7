"""Both embedded servers together, and what has to exist in them before the first job."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config


class EmbeddedStack:
    """Valkey and SeaweedFS with their data under one directory. A context manager that ends what it started."""

    def __init__(self, data: Path, *, redis_port: int = 0, s3_port: int = 0) -> None:
        """Ports 0 take free ones."""
        self.data = data
        self.valkey = Valkey(data / "valkey", port=redis_port)
        self.seaweed = SeaweedFS(data / "seaweedfs", s3_port=s3_port)

    def start(self) -> None:
        """Starts both and waits until both can store something. Raises StartError, and leaves nothing running then."""
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.valkey.start()
            self.seaweed.start()
            undo.pop_all()

    def stop(self) -> None:
        """Ends both. Safe to repeat."""
        self.seaweed.stop()
        self.valkey.stop()

    def configure(self, config: Config) -> None:
        """Points a configuration at these servers."""
        config.redis.addr = self.valkey.addr
        config.object_store.endpoint = self.seaweed.endpoint
        config.object_store.access_key_id = self.seaweed.access_key_id
        config.object_store.secret_access_key = self.seaweed.secret_access_key

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
