"""The exporter: from the streams into the lake, each entry once."""
