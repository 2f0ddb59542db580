"""`pfb clean`: image and deconvolve a measurement set."""

from __future__ import annotations

from pfb.config import Clean
from pfb.errors import InputError
from pfb.graph import deconvolution as builders
from pfb.graph.tasks import Graph, Key
from pfb.io import dataset
from pfb.io.fits import read_mask
from pfb.operators.wavelets import Dictionary
from pfb.pipeline.deconvolution import Deconvolution
from pfb.pipeline.imaging import Run, opened, run_stage, write
from pfb.pipeline.planning import image_geometry
from pfb.pipeline.reporting import Reporter
from pfb.solvers.major_cycle import Cycle, Options, Outcome
from pfb.solvers.major_cycle import run as run_major_cycles


def run(sets: tuple[str, ...], config: Clean, report: Reporter) -> None:
    """Write ``PREFIX.zarr``, dirty, PSF, model, residual and restored images as FITS, and a picture.

    Parameters
    ----------
    sets : tuple of str
        Measurement sets that are imaged together.
    config : Clean
        Options of the command.
    report : Reporter
        Is told the progress, a line per major cycle, and the files.

    Raises
    ------
    InputError
        For anything that cannot be imaged as asked, before work starts wherever it can be known.
    PfbError
        If the deconvolution diverges beyond use.
    """
