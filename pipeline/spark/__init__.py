"""Spark: its session, its JVM, and how it reads the lake.

`session.session(*, master, timezone, quick, settings) -> SparkSession`
starts it, or returns the one that runs; under `spark-submit` that of the cluster.

`lake.read(spark, config, table, (first, last), *, columns, source) -> DataFrame`
is the rows of ingest days (UTC, inclusive), each entry once, by the schema of `pipeline.schema.columns`.

`lake.views(spark, config, (first, last), *, columns, source)`
registers the same as temporary views: `tasks`, `status`, `logs`, `dlq`, `flows`;
and `ledger`, its newest snapshot.

`reading.look(store, table, days) -> Plan` and `lake.planned(spark, config, table, plan, *, columns, source)`
are the two halves of `read`: which files there are (awaited, on a `LakeStore`), and their rows.

`lake.files(spark, config, schema, files, *, source) -> DataFrame`
is the rows of any Parquet files of the lake.

`sql.ask(spark, config, query, (first, last), *, source, limit) -> pa.Table`
is what `fetchbox sql` shows.
"""
