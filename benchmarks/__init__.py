"""What FetchBox costs and survives, measured beside its peers in the same run."""
