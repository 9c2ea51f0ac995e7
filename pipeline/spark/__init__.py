"""Spark: its session, its JVM, and how it reads the lake."""
