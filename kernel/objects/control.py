"""The control plane of the object store, through boto3 in a few threads: buckets, their rules, multipart uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, Final

from fetchbox.config.v1 import config_pb2
from kernel.objects import faults
from kernel.telemetry.logs import get_logger

_THREADS: Final = 16
_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 30
_RULE: Final = {
    "ID": "fetchbox-stale-uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
}
_OURS: Final = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})

_log = get_logger("objects")


class ControlPlane:
    """Calls of boto3 that obstore does not offer. Each raises what boto3 raises; the caller retries."""

    def __init__(self, config: config_pb2.ObjectStore) -> None:
        self._config = config
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="objects")

    @cached_property
    def _client(self) -> Any:
        # boto3 takes 0.3 s to load; a process that only reads and writes small objects does not pay for it.
        import boto3  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415

        return boto3.client(
            "s3",
            endpoint_url=self._config.endpoint or None,
            region_name=self._config.region,
            aws_access_key_id=self._config.access_key_id or None,
            aws_secret_access_key=self._config.secret_access_key or None,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path" if self._config.endpoint else "auto"},
                # Trailing checksums are sent as aws-chunked bodies, which not every S3 reads.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_READ_SECONDS,
                max_pool_connections=_THREADS,
                retries={"total_max_attempts": 1},
            ),
        )

    async def call(self, method: str, **arguments: object) -> dict[str, Any]:
        """One call of the S3 client by the name of its method."""
        return await self._in_thread(lambda: getattr(self._client, method)(**arguments))

    async def now_ms(self, bucket: str) -> int:
        """What time it is for the server of a bucket, in ms, to the second. ValueError where it does not say."""
        answer = await self.call("head_bucket", Bucket=bucket)
        told = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
        return round(parsedate_to_datetime(told).timestamp()) * 1000

    async def create_bucket(self, bucket: str) -> None:
        """Creates the bucket; one of ours that exists is no error."""
        arguments: dict[str, object] = {"Bucket": bucket}
        if not self._config.endpoint and self._config.region != "us-east-1":
            arguments["CreateBucketConfiguration"] = {"LocationConstraint": self._config.region}
        try:
            await self.call("create_bucket", **arguments)
        except faults.StoreErrors as error:
            if faults.read(error).name not in _OURS:
                raise

    async def add_stale_upload_rule(self, bucket: str) -> None:
        """Lets the store abort uploads that are older than two days: those of processes that were killed.

        The bucket's other rules stay. A store that has no such rules, or does not let us set them, is only logged.
        """
        try:
            rules = await self._rules(bucket)
            if all(rule.get("ID") != _RULE["ID"] for rule in rules):
                configuration = {"Rules": [*rules, _RULE]}
                await self.call(
                    "put_bucket_lifecycle_configuration", Bucket=bucket, LifecycleConfiguration=configuration
                )
        except faults.StoreErrors as error:
            _log.warn("stale_upload_rule_not_set", bucket=bucket, error=faults.read(error).message)

    async def _rules(self, bucket: str) -> list[dict[str, Any]]:
        try:
            answer = await self.call("get_bucket_lifecycle_configuration", Bucket=bucket)
        except faults.StoreErrors as error:
            if faults.read(error).status == 404:
                return []
            raise
        rules: list[dict[str, Any]] = answer.get("Rules", [])
        return rules

    async def _in_thread(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self) -> None:
        """Ends the threads; safe twice."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
