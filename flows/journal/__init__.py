"""Where timelines, orders and projections are kept: the journal and its adapters, entries, indexes, the archive."""
