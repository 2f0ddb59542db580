"""Options of the commands that work with a model of the sky."""

from __future__ import annotations

from dataclasses import dataclass

from pfb.config.cluster import Resources
from pfb.config.declaring import Config, option


@dataclass(frozen=True, kw_only=True)
class Fit(Config):
    """Fit spectra and sources to restored images: maps of the spectral index, a catalogue, a component list."""

    output: str | None = option(
        None, short="-o", metavar="PREFIX", help="prefix of the products (default: that of the dataset or the image)"
    )
    overwrite: bool = option(False, help="replace products that exist")
    images: str = option(
        "restored", choices=("restored", "model"), help="what is fitted: restored images, or the model alone, seen with the beam"
    )
    maps: bool = option(True, help="fit every pixel: flux at the reference frequency and spectral index, with their errors")
    curvature: bool = option(False, help="fit a spectral curvature, too, which needs three bands")
    ref_freq: float | None = option(
        None, above=0.0, metavar="MHZ", help="reference frequency (default: the weighted mean of the bands)"
    )
    catalogue: bool = option(True, help="fit Gaussians to the sources of the mean over the bands")
    sigma: float = option(5.0, above=0.0, help="pixels and peaks are above so many times the local noise")
    grow: float = option(3.0, above=0.0, metavar="SIGMA", help="islands of emission reach down to so many times it")
    box: float = option(25.0, minimum=2.0, metavar="BEAMS", help="width of the boxes that the noise is measured in, in beams")
    components: str | None = option(
        None, choices=("model", "catalogue"),
        help="what the component list is made of: pixels of the model, or the catalogue (default: the model if there is one)",
    )
    floor: float = option(
        1e-4, minimum=0.0, maximum=1.0, metavar="FRACTION",
        help="leave out pixels of the model that are fainter than this fraction of its brightest, in all bands",
    )
    terms: int = option(2, minimum=1, help="coefficients of the spectra of the model's pixels, at most one for each band")
    quiet: bool = option(False, help="print errors only")


@dataclass(frozen=True, kw_only=True)
class Regrid(Config):
    """Bring a model to another grid and to other frequencies, with all of its flux."""

    output: str = option(short="-o", metavar="FITS", help="the cube to write, in Jy/pixel")
    overwrite: bool = option(False, help="replace a cube that exists")
    like: str | None = option(
        None, metavar="DATASET|FITS", help="whose grid and bands to take (default: a SIN projection about the model's middle)"
    )
    npix: str | None = option(None, metavar="NX[,NY]", help="image size in pixels (default: as --like, or as the model)")
    cell: float | None = option(None, above=0.0, metavar="ARCSEC", help="pixel size (default: as --like, or as the model)")
    quiet: bool = option(False, help="print errors only")


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
    feed_angle: str = option(
        "none", choices=("none", "receptor", "parallactic"),
        help="turn Q and U of the model to the feeds, as for pfb image; give what was given to make the model",
    )
    epsilon: float = option(1e-7, minimum=2e-13, maximum=1e-2, help="accuracy of the gridder relative to the direct sum")
    wgridding: bool = option(True, help="account for the w-term")
    quiet: bool = option(False, help="print errors only")
