"""Arrays in, arrays out: the arithmetic, with no knowledge of dask, files or options."""
