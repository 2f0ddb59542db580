"""The sky of a dataset as the dishes see it."""

from __future__ import annotations

from pathlib import Path

import zarr

from pfb.io.dataset import read
from pfb.types import Plane, Real


def apparent_model(path: str | Path, plane: Plane) -> Real:
    """Read the model of one plane behind the primary beam, (nx, ny) in Jy/pixel: what predicts visibilities and is restored.

    It is the model itself if the run had no beam, or corrected images alone for it.
    """
    model = read(path, "model", plane)
    facts = zarr.open_group(path, mode="r").attrs.get("primary_beam")
    applied = isinstance(facts, dict) and facts["applied"] == "model"
    return model * read(path, "primary_beam", plane) if applied else model
