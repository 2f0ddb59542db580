"""`pfb restore`: make restored images of a finished run, with a beam of choice."""

from __future__ import annotations

from pathlib import Path

from pfb.config import Restore
from pfb.io.dataset import open_dataset
from pfb.pipeline.beams import choose
from pfb.pipeline.corrected import KINDS as CORRECTED
from pfb.pipeline.corrected import asked_for
from pfb.pipeline.products import write_products
from pfb.pipeline.reporting import Reporter


def run(dataset: str, config: Restore, report: Reporter) -> None:
    """Write ``PREFIX-image-mfs.fits`` and ``PREFIX-image-cube.fits``; with a primary beam ``-image-pbcor`` and ``-pb`` too.

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
        If the store has no model, the beam cannot be read or is too narrow, an image exists, or there is no such primary beam.
    """
    beam = choose("--beam", config.beam, config.common_beam)
    ds = open_dataset(dataset, needs="clean")
    path = Path(dataset)
    prefix = config.output or str(path.with_suffix("") if path.suffix == ".zarr" else path)
    primary = asked_for(dataset, config)
    kinds = ["image", *CORRECTED] if primary or "primary_beam" in ds.attrs else ["image"]
    files = write_products(
        dataset, prefix, kinds=kinds, beam=beam, overwrite=config.overwrite, report=report, nthreads=0, primary=primary
    )
    report.summary("Restored images", {file.name: str(file.parent) for file in files})
