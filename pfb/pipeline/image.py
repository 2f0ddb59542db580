"""`pfb image`: dirty images, PSFs and weights."""

from __future__ import annotations

from pfb.config import Image
from pfb.io import dataset
from pfb.pipeline.imaging import opened
from pfb.pipeline.reporting import Reporter


def run(sets: tuple[str, ...], config: Image, report: Reporter) -> None:
    """Write ``PREFIX.zarr``, dirty and PSF images as FITS, and a picture.

    Parameters
    ----------
    sets : tuple of str
        Measurement sets that are imaged together.
    config : Image
        Options of the command.
    report : Reporter
        Is told the progress and the files.

    Raises
    ------
    InputError
        For anything that cannot be imaged as asked, before work starts wherever it can be known.
    """
    with opened(sets, config, report, maker="image") as state:
        dataset.finish(state.run.store)
