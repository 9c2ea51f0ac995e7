"""The lake: what becomes of the streams. The exporter fills it; Spark keeps it in order and asks it questions."""
