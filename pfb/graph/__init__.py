"""dask graphs: names, indices, chunks and placement, but no arithmetic."""
