"""`pfb restore`: make restored images of a finished run, with a beam of choice."""

from __future__ import annotations

from pathlib import Path

from pfb.config import Restore
from pfb.errors import InputError
from pfb.io.dataset import open_dataset
from pfb.pipeline.beams import read_beam
from pfb.pipeline.products import Choice, write_products
from pfb.pipeline.reporting import Reporter


def run(dataset: str, config: Restore, report: Reporter) -> None:
    """Write ``PREFIX-image-mfs.fits`` and ``PREFIX-image-cube.fits``.

    Parameters
    ----------
    dataset : str
        The ``PREFIX.zarr`` of a finished `pfb clean`.
    config : Restore
        Options of the command.
    report : Reporter
        Is told the progress and the files.

    Raises
    ------
    InputError
        If the store has no model, the beam cannot be read or is too narrow, or an image exists.
    """
    beam = choose_beam(config)
    open_dataset(dataset, needs="clean")
    path = Path(dataset)
    prefix = config.output or str(path.with_suffix("") if path.suffix == ".zarr" else path)
    files = write_products(dataset, prefix, kinds=["image"], beam=beam, overwrite=config.overwrite, report=report, nthreads=0)
    report.summary("Restored images", {file.name: str(file.parent) for file in files})


def choose_beam(config: Restore) -> Choice:
    """Read the restoring beam from the options.

    Returns
    -------
    Beam or {"native", "common"}
        Widths and angle in radians.

    Raises
    ------
    InputError
        If both a beam and the common one are asked for, or ``--beam`` is not
        ``BMAJ`` or ``BMAJ,BMIN,BPA`` in arcsec and degrees.
    """
    if config.beam is None:
        return "common" if config.common_beam else "native"
    if config.common_beam:
        raise InputError(f"--beam {config.beam} and --common-beam exclude each other; give one of them")
    return read_beam("--beam", config.beam)
