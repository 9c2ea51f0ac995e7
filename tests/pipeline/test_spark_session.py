"""The one session, and what it runs on."""

import logging
import signal

import pytest
from pyspark.sql import SparkSession


def test_days_begin_in_utc(spark: SparkSession) -> None:
    told = spark.sql("select cast(timestamp_micros(0) as string) as t").toArrow()
    assert told.to_pylist() == [{"t": "1970-01-01 00:00:00"}]


def test_ctrl_c_does_what_it_did_before(spark: SparkSession) -> None:
    assert spark.version
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("spark")
def test_a_call_of_the_jvm_that_is_interrupted_leaves_no_trace() -> None:
    assert not logging.getLogger("py4j").propagate
    told = [logging.makeLogRecord({"pathname": path}) for path in ("/lib/py4j/java_gateway.py", __file__)]
    assert [bool(logging.getLogger().filter(record)) for record in told] == [False, True]
