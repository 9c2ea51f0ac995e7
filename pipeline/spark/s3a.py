"""Parquet files through Hadoop's `s3a://`, where a cluster has its jars: Spark reads only the columns that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from fetchbox.config.v1 import config_pb2

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FILE_SYSTEM: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def available(spark: SparkSession) -> bool:
    """Whether this Spark knows `s3a://`. The package pyspark does not: it brings neither hadoop-aws nor the AWS SDK."""
    hadoop = _hadoop(spark)
    return hadoop.getClassByNameOrNull(hadoop.get("fs.s3a.impl", _FILE_SYSTEM)) is not None


def configure(spark: SparkSession, store: config_pb2.ObjectStore) -> None:
    """Tells Hadoop where the object store is, unless `spark.hadoop.fs.s3a.…` does. No plan and no argument shows it."""
    wanted = {
        "endpoint": store.endpoint,
        "endpoint.region": store.region,
        "path.style.access": "true" if store.endpoint else "",
        "connection.ssl.enabled": "false" if store.endpoint.startswith("http://") else "",
        "access.key": store.access_key_id,
        "secret.key": store.secret_access_key,
    }
    hadoop = _hadoop(spark)
    for name, value in wanted.items():
        key = f"fs.s3a.{name}"
        if value and spark.conf.get(f"spark.hadoop.{key}", None) is None:
            hadoop.set(key, value)


def frame(spark: SparkSession, schema: StructType, paths: Iterable[str]) -> DataFrame:
    """The rows of files, at least one; `paths` have their scheme. Columns that an older schema lacks are null."""
    return spark.read.schema(schema).parquet(*paths)


def _hadoop(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()  # PySpark has no other way to it
