"""The options of every command, said once: name, type, default, unit, range and help.

A field of one of these classes is an option of the command line (``psf_oversize`` becomes
``--psf-oversize``, a switch also ``--no-...``), a key of the YAML file and a line of the option reference.
"""

from __future__ import annotations

from dataclasses import dataclass

from pfb.config.averaging import Averaging
from pfb.config.cluster import ClusterSubmit, Resources
from pfb.config.components import ALGORITHMS, NNLS, SARA, Components
from pfb.config.declaring import Config, check, option
from pfb.config.models import Fit, Predict, Regrid
from pfb.config.primary_beam import PrimaryBeam

__all__ = [
    "Averaging",
    "Check",
    "Clean",
    "ClusterSubmit",
    "Config",
    "Convolve",
    "Fit",
    "Image",
    "Imaging",
    "Info",
    "Mask",
    "Masking",
    "Output",
    "Plan",
    "Predict",
    "PrimaryBeam",
    "Regrid",
    "Resources",
    "Restore",
    "Selection",
    "Simulate",
    "check",
    "option",
]


@dataclass(frozen=True, kw_only=True)
class Output(Config):
    """Where the products go."""

    output: str = option(
        short="-o", metavar="PREFIX", help="products are named PREFIX.zarr, PREFIX-*.fits and PREFIX-quicklook.png"
    )
    overwrite: bool = option(False, help="replace products that exist; they stay until the new ones are complete")
    profile: bool = option(False, help="write what every stage takes of time, memory and network into the folder PREFIX-profile")
    quiet: bool = option(False, help="print errors only")


@dataclass(frozen=True, kw_only=True)
class Selection(Config):
    """Which samples of a measurement set are used."""

    field: str | None = option(
        None, metavar="ID|NAME,...",
        help="fields to use, names also as patterns like 'J04*'; default: the only one, or the only one observed as a target"
    )
    spw: str | None = option(
        None, metavar="ID,...", help="spectral windows to use, e.g. 0,2~4 (default: all that own rows)"
    )
    scan: str | None = option(None, metavar="NUMBER,...", help="scans to use, e.g. 1,5~9 (default: all)")
    chan: str | None = option(
        None, metavar="FIRST~LAST,...", help="channels to use in every spectral window, e.g. 10~46 (default: all)"
    )
    time: str | None = option(
        None, metavar="UTC~UTC,...",
        help="times to use, e.g. 2024-06-10T06:00:00~2024-06-10T06:10:00, or only ~06:10:00 for the same day (default: all)",
    )
    min_uv: str | None = option(
        None, metavar="LENGTH",
        help="shortest projected baseline to use, in wavelengths, or with a unit: 100lambda, 2klambda, 300m, 1.5km",
    )
    max_uv: str | None = option(None, metavar="LENGTH", help="longest projected baseline to use, as for --min-uv")
    data_column: str | None = option(
        None, metavar="COLUMN",
        help="visibilities, or a sum of columns, e.g. CORRECTED_DATA-MODEL_DATA "
        "(default: CORRECTED_DATA if the set has it, else DATA)",
    )
    weight_column: str | None = option(
        None, metavar="COLUMN",
        help="natural weights; of SIGMA or SIGMA_SPECTRUM 1 / sigma^2 (default: WEIGHT_SPECTRUM if it is usable, else WEIGHT)",
    )
    stokes: str = option(
        "I", metavar="PRODUCTS", help="Stokes products, some of I, Q, U, V, e.g. IQUV; pfb clean deconvolves them jointly"
    )
    feed_angle: str = option(
        "none", choices=("none", "receptor", "parallactic"),
        help="turn Q and U to the sky by the angle of the feeds on the dishes, or by that and the parallactic angle "
        "(none: calibration has done so, or the feeds need no turning)",
    )
    clip: float = option(
        0.0, minimum=0.0, maximum=0.5, metavar="FRACTION",
        help="drop this fraction of each band's strongest samples (interference)",
    )
    stokes_weight: str = option(
        "l2", choices=("l2", "minvar"),
        help="weight of a Stokes sample: inverse variance, or the least of its two correlations",
    )


@dataclass(frozen=True, kw_only=True)
class Imaging(Config):
    """The image grid, its bands and the weighting."""

    nband: int | None = option(
        None, minimum=1, help="imaging bands that the channels are divided into (default: 4, or the channels if fewer)"
    )
    npix: str | None = option(None, metavar="NX[,NY]", help="image size in pixels (default: from --fov and --cell)")
    cell: float | None = option(
        None, above=0.0, metavar="ARCSEC",
        help="pixel size (default: Nyquist's of the longest baseline / --super-resolution)",
    )
    fov: float | None = option(
        None, above=0.0, metavar="DEG", help="width of the image (default: out to the first null of the primary beam)"
    )
    super_resolution: float = option(2.0, minimum=1.0, help="pixels per Nyquist pixel when --cell is not given")
    psf_oversize: float = option(
        1.4, minimum=1.0, maximum=2.0, help="size of the PSF over that of the image, for the preconditioner"
    )
    weighting: str = option("briggs", choices=("natural", "uniform", "briggs"), help="imaging weights")
    robust: float = option(
        0.0, minimum=-2.0, maximum=2.0, help="Briggs' parameter: -2 is nearly uniform, 2 nearly natural"
    )
    super_uniform: int = option(
        0, minimum=0, maximum=1000, metavar="CELLS",
        help="density is counted in so many cells of the uv-plane on every side of a sample's own as well",
    )
    weight_grouping: str = option(
        "mfs", choices=("mfs", "band"), help="density is counted over all bands together, or over every band alone"
    )
    weight_floor: float = option(
        0.0, minimum=0.0, metavar="FRACTION",
        help="least density, over the median of the cells with samples, so that lone samples are not blown up",
    )
    taper: str | None = option(
        None, metavar="BMAJ[,BMIN,BPA]", help="weigh long baselines down, which smooths with this Gaussian in arcsec and degrees"
    )
    inner_taper: float | None = option(
        None, above=0.0, metavar="ARCSEC", help="weigh short baselines down, which takes out what a Gaussian of this width keeps"
    )
    epsilon: float = option(
        1e-7, minimum=2e-13, maximum=1e-2, help="accuracy of the gridder relative to the direct sum"
    )
    wgridding: bool = option(True, help="correct for the w-term")


@dataclass(frozen=True, kw_only=True)
class Image(Output, Selection, Averaging, Imaging, Resources):
    """Make dirty images, PSFs and weights."""


@dataclass(frozen=True, kw_only=True)
class Masking(Config):
    """Where the model may differ from zero."""

    mask: str | None = option(
        None, metavar="FILE",
        help="the model is zero where this FITS image is zero or blank, or outside these regions of DS9 or CASA",
    )
    mask_reproject: bool = option(False, help="bring a --mask on another grid to that of the image")
    auto_mask: float | None = option(
        None, above=0.0, metavar="SIGMA", help="the model is zero outside islands that exceed so many times the local noise"
    )
    auto_mask_grow: float | None = option(
        None, above=0.0, metavar="SIGMA",
        help="islands reach down to so many times the local noise (default: 3, or --auto-mask if that is less)",
    )
    auto_mask_box: float = option(
        25.0, minimum=2.0, metavar="BEAMS", help="width of the boxes that the local noise is measured in, in beams"
    )
    auto_mask_at: str = option("0,1,2,4,8", metavar="CYCLE,...", help="major cycles before which the automatic mask is made anew")


@dataclass(frozen=True, kw_only=True)
class Clean(Masking, PrimaryBeam, Components, Image):
    """Image and deconvolve a measurement set."""

    beam_use: str = option(
        "model", choices=("model", "images"),
        help="the model is the sky before the beam, or the apparent sky and images alone are corrected",
    )
    model: tuple[str, ...] = option(
        (), metavar="DATASET|FITS",
        help="start from this model, on whatever grid and at whatever frequencies; given several times: images of more bands",
    )
    algorithm: str = option(
        "sara", choices=ALGORITHMS,
        help="sara: a prior in wavelet bases; hogbom, clark, multiscale: CLEAN; nnls: least squares without negative pixels",
    )
    bases: str = option("self,db1,db2,db3", metavar="NAME,...", only=SARA, help="wavelet bases: self and db1 ... db8")
    nlevels: int = option(5, minimum=1, maximum=10, only=SARA, help="levels of the wavelet decompositions")
    prior: str = option(
        "mean21", choices=("l21", "mean21"), only=SARA, help="how coefficients are thresholded jointly over frequency"
    )
    start_level: float = option(
        0.1, above=0.0, maximum=1.0, metavar="FRACTION",
        only=SARA, help="start from point sources found down to this fraction of the peak (1: from an empty model)",
    )
    rmsfactor: float = option(0.26, above=0.0, only=SARA, help="threshold over the rms that the MFS residual shall come to")
    niter: int = option(20, minimum=1, help="major cycles at most")
    tol: float = option(
        5e-4, minimum=0.0, only=SARA + NNLS, help="stop when a major cycle changes the model by less than this fraction"
    )
    gamma: float = option(1.0, minimum=0.01, maximum=1.9, only=SARA, help="step of the forward-backward iteration")
    eta: float = option(1e-3, minimum=0.0, help="added to the diagonal of the Hessian, relative to the total weight")
    cg_tol: float = option(1e-3, minimum=0.0, help="stop the conjugate gradients at this relative residual")
    cg_maxit: int = option(150, minimum=1, help="conjugate gradient iterations at most")
    pd_tol: float = option(1e-6, minimum=0.0, only=SARA, help="stop the primal-dual iteration at this relative change")
    pd_maxit: int = option(25, minimum=1, only=SARA, help="primal-dual iterations at most")
    precision: str = option(
        "single", choices=("single", "double"),
        help="of images and coefficients while minimising; visibilities and residuals are double always",
    )
    positivity: str = option(
        "none",
        choices=("none", "clip", "joint"),
        help="clip: no pixel is negative; joint: one that is negative in any band is zero in all",
    )
    restoring_beam: str | None = option(
        None, metavar="BMAJ[,BMIN,BPA]",
        help="beam of the restored images in arcsec and degrees (default: the native beams; the cube has each band's own)",
    )
    common_beam: bool = option(False, help="restore every band with the smallest beam that encloses all of them")
    resume: bool = option(False, help="go on from the checkpoint of a run that ended early, if there is one")
    checkpoint: int | None = option(
        None, minimum=0, metavar="ITERATIONS",
        help="write a checkpoint every so many inner iterations, 0: never (default: as often as takes 2% of the time)",
    )
    l1_reweight_from: int = option(
        0, metavar="CYCLE", only=SARA, help="major cycle from which the threshold is reweighted (negative: never)"
    )
    alpha: float = option(2.0, minimum=0.0, only=SARA, help="exponent of the reweighting")
    robust_reweight_at: str | None = option(
        None, metavar="CYCLE,...",
        help="weigh visibilities down that the model leaves unexplained, after so many major cycles (or when it would end)",
    )
    robust_nu: float | None = option(
        None, above=0.0, metavar="NU",
        help="degrees of freedom of the t distribution of these: few for many outliers (default: each band's most likely)",
    )


@dataclass(frozen=True, kw_only=True)
class Plan(Clean):
    """Say what `pfb clean` would take with the same options, without running it."""

    output: str = option("", short="-o", metavar="PREFIX", help="as for pfb clean; nothing is written")


@dataclass(frozen=True, kw_only=True)
class Check(Clean):
    """Try all that could fail in a run of `pfb clean` with the same options, without running it."""

    output: str = option("", short="-o", metavar="PREFIX", help="as for pfb clean; nothing is written")
    model_column: str | None = option(
        None, metavar="COLUMN", help="also try whether pfb predict could write this column: one cell is written as it is"
    )
    json: bool = option(False, help="print what was found as JSON")


@dataclass(frozen=True, kw_only=True)
class Restore(PrimaryBeam):
    """Make restored images from a finished run."""

    output: str | None = option(
        None, short="-o", metavar="PREFIX", help="prefix of the new images (default: that of the dataset)"
    )
    overwrite: bool = option(False, help="replace images that exist")
    beam: str | None = option(
        None, metavar="BMAJ[,BMIN,BPA]",
        help="restoring beam in arcsec and degrees (default: the native beams; the cube has each band's own)",
    )
    common_beam: bool = option(False, help="restore every band with the smallest beam that encloses all of them")
    quiet: bool = option(False, help="print errors only")


@dataclass(frozen=True, kw_only=True)
class Convolve(Config):
    """Bring images to one beam: a given one, or the smallest that encloses those of all planes of all images."""

    output: str | None = option(None, short="-o", metavar="FOLDER", help="folder of the new images (default: beside each image)")
    suffix: str = option("convolved", metavar="WORD", help="NAME.fits becomes NAME-WORD.fits")
    overwrite: bool = option(False, help="replace images that exist")
    beam: str | None = option(
        None, metavar="BMAJ[,BMIN,BPA]",
        help="the beam in arcsec and degrees (default: the smallest that encloses the beams of all planes of all images)",
    )
    native_beam: str | None = option(
        None, metavar="BMAJ[,BMIN,BPA]", help="beam of planes whose file says none, in arcsec and degrees"
    )
    quiet: bool = option(False, help="print errors only")


@dataclass(frozen=True, kw_only=True)
class Mask(Config):
    """Write the mask of what stands out of the local noise of a FITS image."""

    output: str | None = option(None, short="-o", metavar="FITS", help="the mask (default: IMAGE-mask.fits)")
    overwrite: bool = option(False, help="replace a mask that exists")
    sigma: float = option(5.0, above=0.0, help="islands exceed so many times the local noise somewhere")
    grow: float | None = option(
        None, above=0.0, metavar="SIGMA", help="and reach down to so many times it (default: 3, or --sigma if that is less)"
    )
    box: float = option(25.0, minimum=2.0, metavar="BEAMS", help="width of the boxes that the noise is measured in, in beams")
    beam: float | None = option(None, above=0.0, metavar="ARCSEC", help="width of the beam (default: that of the image's header)")
    negative: bool = option(False, help="find what is negative, too, as for Stokes Q, U and V")
    quiet: bool = option(False, help="print errors only")


@dataclass(frozen=True, kw_only=True)
class Simulate(Config):
    """Write a MeerKAT-like measurement set with a known sky."""

    overwrite: bool = option(False, help="replace a set that exists")
    sky: str | None = option(None, metavar="ECSV|YAML", help="components (default: random)")
    nsource: int = option(80, minimum=1, help="point sources of the random sky")
    polarised: float = option(
        0.0, minimum=0.0, maximum=1.0, metavar="FRACTION", help="linear polarisation of the sources of the random sky"
    )
    feed: str = option("linear", choices=("linear", "circular"), help="receivers: XX XY YX YY or RR RL LR LL")
    nant: int = option(64, minimum=2, maximum=64, help="dishes")
    nchan: int = option(32, minimum=1, help="channels of each spectral window")
    nspw: int = option(1, minimum=1, help="spectral windows")
    band: str = option("L", choices=("UHF", "L", "S4"), help="receiver")
    beam_model: str = option(
        "none", choices=("none", "katbeam"), help="see the sky through MeerKAT's primary beam, which turns with it"
    )
    scans: int = option(2, minimum=1, help="target scans")
    scan_length: float = option(5.0, minimum=0.1, metavar="MINUTES", help="length of a target scan")
    dump: float = option(8.0, minimum=0.1, metavar="SECONDS", help="integration time")
    ra: float = option(63.36, minimum=0.0, maximum=360.0, metavar="DEG", help="right ascension of the target")
    dec: float = option(-45.0, minimum=-90.0, maximum=90.0, metavar="DEG", help="declination of the target")
    start: str = option("2024-06-10T06:00:00", metavar="UTC", help="start of the observation")
    sefd: float = option(420.0, minimum=0.0, metavar="JY", help="system equivalent flux density (sets the noise)")
    gain_error: float = option(0.0, minimum=0.0, help="rms of the gain errors left in DATA (CORRECTED_DATA has none)")
    rfi: float = option(0.02, minimum=0.0, maximum=0.9, help="fraction of samples spoilt by interference and flagged")
    seed: int = option(0, minimum=0, help="seed of all random numbers")
    quiet: bool = option(False, help="print errors only")


@dataclass(frozen=True, kw_only=True)
class Info(Config):
    """Say what is in a measurement set."""
