"""The one session, and what it runs on."""

from pyspark.sql import SparkSession


def test_days_begin_in_utc(spark: SparkSession) -> None:
    told = spark.sql("select cast(timestamp_micros(0) as string) as t").toArrow()
    assert told.to_pylist() == [{"t": "1970-01-01 00:00:00"}]
