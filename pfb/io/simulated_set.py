"""Write MeerKAT-like measurement sets of a known sky, with true dish positions and geometry, and deliberate defects for tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfb.io.simulated_layout import CIRCULAR, LINEAR, Defects, Layout, Simulation, lay_out
from pfb.io.simulated_samples import draw_gains, make_block
from pfb.io.simulated_tables import create_main, write_subtables
from pfb.io.staging import staged

__all__ = ["CIRCULAR", "LINEAR", "Defects", "Layout", "Simulation", "lay_out", "write_set"]


def _ignore(done: int) -> None:
    pass


def write_set(path: str, layout: Layout, *, overwrite: bool = False, progress: Callable[[int], None] = _ignore) -> None:
    """Write a measurement set; it appears at `path` once it is complete.

    DATA holds the model times the gains, CORRECTED_DATA the model, both with the same noise
    of ``layout.noise`` Jy; flagged samples keep their interference.

    Parameters
    ----------
    path
        Directory to make.
    layout
        From `lay_out`.
    overwrite
        Whether a set that exists is replaced.
    progress
        Told 1 after each of ``layout.blocks``.

    Raises
    ------
    InputError
        If `path` exists and is not to be replaced, or cannot be written.
    """
    with staged(os.path.normpath(path), overwrite) as temporary:
        rng = np.random.default_rng(layout.simulation.seed)
        gains = draw_gains(layout, rng)
        order = rng.permutation(layout.rows) if layout.simulation.defects.shuffled else None
        with create_main(str(temporary), layout) as table:
            table.addrows(layout.rows)
            first = 0
            for block in layout.blocks:
                columns = make_block(layout, block, gains[block.window], rng)
                last = first + len(columns["TIME"])
                _put(table, columns, slice(first, last) if order is None else order[first:last])
                first = last
                progress(1)
        write_subtables(str(temporary), layout)
        _harm(temporary, layout.simulation.defects)


def _harm(path: Path, defects: Defects) -> None:
    """Spoil a complete set as a whole."""
    for name in defects.missing_tables:
        shutil.rmtree(path / name)
    if defects.read_only:
        for place in (path, *path.rglob("*")):
            place.chmod(0o555 if place.is_dir() else 0o444)


def _put(table: Any, columns: dict[str, NDArray[Any]], rows: slice | NDArray[np.int64]) -> None:
    for name in columns.keys() & set(table.columns()):
        table.putcol(name, columns[name], index=(rows,))
