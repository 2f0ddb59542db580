"""Options of the commands that work with a model of the sky."""

from __future__ import annotations

from dataclasses import dataclass

from pfb.config.cluster import Resources
from pfb.config.declaring import option


@dataclass(frozen=True, kw_only=True)
class Predict(Resources):
    """Predict the visibilities of a model, and write them, or the data less or plus them, into measurement sets."""

    model: tuple[str, ...] = option(
        metavar="MODEL",
        help="dataset of pfb clean, FITS image or cube in Jy/pixel, component list of WSClean, or sky of pfb simulate; "
        "given several times: images of more bands, or more components",
    )
    column: str | None = option(
        None, metavar="COLUMN", help="where to write; made like DATA if the set has none (default: MODEL_DATA)"
    )
    subtract: bool = option(False, help="write the data less the model; --column is needed")
    add: bool = option(False, help="write the data plus the model; --column is needed")
    data_column: str | None = option(
        None, metavar="COLUMN", help="the data (default: CORRECTED_DATA if the set has it and it is not --column, else DATA)"
    )
    overwrite: bool = option(False, help="replace a column that exists; MODEL_DATA is always replaced")
    region: str | None = option(None, metavar="REG", help="use only what lies in these DS9 regions")
    outside: bool = option(False, help="use only what lies outside of --region")
    spectrum: str = option(
        "band", choices=("band", "linear", "polynomial"),
        help="channels have the image of their band, or of the nearest; one interpolated between bands; or a fitted polynomial",
    )
    terms: int = option(2, minimum=1, help="coefficients of the polynomial")
    field: str | None = option(
        None, metavar="ID|NAME,...", help="fields to write, each about its own centre; default: as for pfb image"
    )
    spw: str | None = option(None, metavar="ID,...", help="spectral windows to write, e.g. 0,2~4 (default: all)")
    scan: str | None = option(None, metavar="NUMBER,...", help="scans to write, e.g. 1,5~9 (default: all)")
    chan: str | None = option(None, metavar="FIRST~LAST,...", help="channels to write, e.g. 10~46 (default: all)")
    epsilon: float = option(1e-7, minimum=2e-13, maximum=1e-2, help="accuracy of the gridder relative to the direct sum")
    wgridding: bool = option(True, help="account for the w-term")
    quiet: bool = option(False, help="print errors only")
