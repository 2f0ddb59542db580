"""Algorithms written on protocols; they know neither dask nor any concrete operator."""
