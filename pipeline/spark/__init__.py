"""Spark: its session, its JVM, and how it reads the lake.

session.session(*, master, timezone, quick, settings) -> SparkSession
    starts it, or returns the one that runs; under `spark-submit` that of the cluster
lake.read(spark, config, table, (first, last), *, columns, source) -> DataFrame
    the rows of ingest days (UTC, inclusive), each entry once, by the schema of `pipeline.schema.columns`
lake.views(spark, config, (first, last), *, tables, source)
    the same as temporary views `tasks`, `status`, `logs`, `dlq`, `flows`
reading.look(store, table, days) -> Plan, and lake.planned(spark, config, table, plan, *, columns, source)
    `read` in its two halves: which files (awaited, on a `LakeStore`), and their rows
lake.files(spark, config, schema, files, *, source) -> DataFrame
    the rows of any Parquet files of the lake
sql.run(spark, config, query, days) -> Answer
    what `fetchbox sql` shows
"""
