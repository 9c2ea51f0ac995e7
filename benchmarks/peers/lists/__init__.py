"""Workers of file jobs, FetchBox's and the plain loop of `BRPOPLPUSH`, for `benchmarks.lists`."""
