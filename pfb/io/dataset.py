"""The dataset `PREFIX.zarr`: names, dimensions, units and attributes of all that a run leaves behind.

It is a zarr 3 store that ``xarray.open_zarr`` reads. `create` lays out every array, tasks
on any worker `write` and `read` one plane each, `finish` adds the history, and
`open_dataset` refuses what does not follow the schema.

Image-space arrays are *raw*: sums over weighted samples, not divided by any sum of weights.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import BloscCodec
from zarr.errors import ZarrUserWarning

from pfb import __version__
from pfb.errors import InputError, ShapeError
from pfb.types import Band, Geometry, Observation, Plane, Real

SCHEMA_VERSION = 2
MAKERS = ("image", "clean")
BEAM_PARAMETERS = ("major", "minor", "pa")
PACKAGES = ("numpy", "ducc0", "numba", "dask", "distributed", "zarr", "xarray", "astropy")

# A chunk is read whole; 64 MiB is a plane of 2896 x 2896 in double precision.
CHUNK_BYTES = 64 * 2**20


class Variable(NamedTuple):
    """One array of the store."""

    dims: tuple[str, ...]
    dtype: str
    """NumPy's name, or ``real`` for the precision that the layout asks for."""
    units: str
    makers: tuple[str, ...]
    """The commands whose stores have it."""
    description: str
    compress: bool = True
    prior: bool = False
    """Only a minimisation with a prior in wavelet bases has it."""


PLANE = ("stokes", "band")
IMAGE = (*PLANE, "x", "y")

SCHEMA: dict[str, Variable] = {
    "freq": Variable(("band",), "f8", "Hz", MAKERS, "effective frequency: the weighted mean over the band's samples"),
    "freq_min": Variable(("band",), "f8", "Hz", MAKERS, "lower edge of the band's lowest channel"),
    "freq_max": Variable(("band",), "f8", "Hz", MAKERS, "upper edge of the band's highest channel"),
    "wsum": Variable(PLANE, "f8", "weight", MAKERS, "sum of the imaging weights, 0 for an empty band"),
    "thermal": Variable(PLANE, "f8", "Jy/beam", MAKERS, "noise of the dirty image that natural weights foretell"),
    "beam": Variable((*PLANE, "beam_parameter"), "f8", "rad", MAKERS, "widths at half maximum and position angle of the PSF"),
    "dirty": Variable(IMAGE, "real", "Jy/beam * weight", MAKERS, "dirty image, raw"),
    "psf": Variable((*PLANE, "x_psf", "y_psf"), "real", "weight", MAKERS, "point spread function, raw: its peak is wsum"),
    "model": Variable(IMAGE, "real", "Jy/pixel", ("clean",), "deconvolved sky"),
    "residual": Variable(IMAGE, "real", "Jy/beam * weight", ("clean",), "dirty image of the data less the model, raw"),
    "update": Variable(IMAGE, "real", "Jy/pixel", ("clean",), "last preconditioned residual", prior=True),
    "primary_beam": Variable(IMAGE, "real", "1", (), "power response of the dishes; only if a run was given one"),
    # Dense numbers of full precision: lz4 saves a tenth of the space and costs three times the time.
    "dual": Variable(
        ("basis", *PLANE, "coefficient"), "real", "1", ("clean",), "dual of the primal-dual iteration", compress=False, prior=True
    ),
}

OF_A_PRODUCT = ("peak", "rms", "noise")
"""Columns of the history that every Stokes product has its own of."""

HISTORY: dict[str, tuple[str, str]] = {
    "peak": ("Jy/beam", "largest absolute value of the product's MFS residual"),
    "rms": ("Jy/beam", "rms of the product's MFS residual"),
    "noise": ("Jy/beam", "rms that the MFS residual would have if its visibilities were incoherent"),
    "lambda": ("Jy/beam", "threshold"),
    "objective": ("1", "objective function after the cycle"),
    "inner": ("1", "iterations of the cycle"),
    "seconds": ("s", "wall time of the cycle"),
    "change": ("1", "relative change of the model"),
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a store is going to hold."""

    maker: str
    """The command that makes it, ``image`` or ``clean``."""
    geometry: Geometry
    observation: Observation
    bands: Sequence[Band]
    psf_shape: tuple[int, int]
    products: str = "I"
    """Stokes products, in the order of the axis ``stokes``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run, as JSON can hold them."""
    bases: tuple[str, ...] = ()
    nlevels: int = 0
    ncoefficient: int = 0
    """Coefficients of one basis and band, the length of the dual's last axis."""
    dtype: str = "f8"
    """Precision of images and of the dual."""
    primary_beam: Mapping[str, Any] | None = None
    """``model``: which beam; ``cutoff``: where corrected images are blank; ``applied``: to the ``model``, which is the sky before
    the beam, or to ``images`` only, so that the model is the apparent sky. None without a beam."""

    def sizes(self) -> dict[str, int]:
        """Return the length of every dimension."""
        nx_psf, ny_psf = self.psf_shape
        return dict(
            stokes=len(self.products), band=len(self.bands), x=self.geometry.nx, y=self.geometry.ny, x_psf=nx_psf, y_psf=ny_psf,
            basis=len(self.bases), coefficient=self.ncoefficient, beam_parameter=len(BEAM_PARAMETERS),
        )  # fmt: skip


def create(path: str | Path, layout: Layout) -> None:
    """Create a store with all its arrays, empty (NaN), and its attributes.

    No chunk spans two planes, so that tasks may write different planes at the same time, and
    none exceeds 64 MiB. Frequencies are written; everything else is left to `write`.

    Raises
    ------
    InputError
        If something is at `path` already.
    """
    if Path(path).exists():
        raise InputError(f"{path} exists already; remove it or choose another name")
    group = zarr.create_group(path, zarr_format=3, attributes=_attributes(layout))
    sizes = layout.sizes()
    beams = {} if layout.primary_beam is None else {"primary_beam": SCHEMA["primary_beam"]}
    for name, variable in (variables(layout.maker, layout.bases) | beams).items():
        dtype = np.dtype(layout.dtype if variable.dtype == "real" else variable.dtype)
        shape = tuple(sizes[dim] for dim in variable.dims)
        group.create_array(
            name,
            shape=shape,
            dtype=dtype,
            chunks=_chunks(variable.dims, shape, dtype.itemsize),
            compressors=BloscCodec(cname="lz4", clevel=1, shuffle="shuffle") if variable.compress else None,
            fill_value=np.nan,
            dimension_names=variable.dims,
            attributes=dict(units=variable.units, description=variable.description),
        )
    for name in ("freq", "freq_min", "freq_max"):
        write(path, name, None, np.array([getattr(band, name) for band in layout.bands]))


def write(path: str | Path, name: str, plane: Plane | None, array: Real | float) -> None:
    """Write one plane of a variable, or all of it if `plane` is None.

    Calls for different planes may run at the same time, in threads, processes or on other machines.

    Parameters
    ----------
    path : str or Path
        A store that `create` laid out.
    name : str
        A variable of `SCHEMA`.
    plane : Plane or None
        Places of its product and of its band.
    array : array or float
        The values, of the variable's shape without its axes ``stokes`` and ``band``; cast to its dtype.

    Raises
    ------
    ShapeError
        If the shape is another one.
    InputError
        If the store has no such variable.
    """
    target, where = _select(path, name, plane, "r+")
    values = np.asarray(array)
    shape = tuple(n for n, index in zip(target.shape, where, strict=True) if isinstance(index, slice))
    if values.shape != shape:
        raise ShapeError(f"{name} of {path} takes an array of shape {shape} but got {values.shape}; make the store anew")
    target[where] = values.astype(target.dtype, copy=False)


def read(path: str | Path, name: str, plane: Plane | None = None) -> Real:
    """Read one plane of a variable, or all of it if `plane` is None; see `write`."""
    source, where = _select(path, name, plane, "r")
    return np.asarray(source[where])


def finish(
    path: str | Path, history: Sequence[Mapping[str, float | Sequence[float]]] = (), attributes: Mapping[str, Any] | None = None
) -> None:
    """Add the history and mark the store as complete.

    Parameters
    ----------
    path : str or Path
        A store whose bands have all been written.
    history : sequence of mappings
        One for each major cycle; keys are those of `HISTORY`, a missing one becomes NaN. Those in `OF_A_PRODUCT` have a value
        for each product.
    attributes : mapping, optional
        Attributes to add, as JSON can hold them.

    Raises
    ------
    InputError
        If the weight sum of a band was never written, or if a key of the history is unknown.
    """
    wsum = read(path, "wsum")
    unwritten = np.flatnonzero(np.isnan(wsum).any(axis=0))
    if unwritten.size:
        raise InputError(f"{path} has no weight sum for bands {unwritten.tolist()}; write every band before finishing")
    unknown = sorted({key for row in history for key in row} - set(HISTORY))
    if unknown:
        raise InputError(f"the history has unknown columns {', '.join(unknown)}; it may have {', '.join(HISTORY)}")
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    if history:
        for name, (units, description) in HISTORY.items():
            of_a_product = name in OF_A_PRODUCT
            blank = [np.nan] * len(wsum) if of_a_product else np.nan
            values = np.array([row.get(name, blank) for row in history], "f8")
            group.create_array(
                f"history_{name}",
                data=values,
                chunks=values.shape,
                fill_value=np.nan,
                dimension_names=("cycle", "stokes") if of_a_product else ("cycle",),
                attributes=dict(units=units, description=description),
                overwrite=True,
            )
    # `update` keeps what is there; xarray's mode "a" would replace it.
    group.attrs.update({**(attributes or {}), "finished": True})
    with warnings.catch_warnings():
        # Consolidated metadata is an extension of zarr 3, but xarray warns when a store has none.
        warnings.simplefilter("ignore", ZarrUserWarning)
        zarr.consolidate_metadata(group.store)


def open_dataset(path: str | Path, needs: str = "image") -> xr.Dataset:
    """Open a finished store and check it against the schema.

    Parameters
    ----------
    path : str or Path
        A store that `pfb image` or `pfb clean` wrote.
    needs : str
        ``clean`` if the model and the residual are needed.

    Returns
    -------
    xarray.Dataset
        Lazy: a variable is read when its values are asked for. `freq` is a coordinate, and so are the names of the
        products, ``ds.sel(stokes="Q")``.

    Raises
    ------
    InputError
        If there is no store, if it is not ours, unfinished or of another schema, or if
        it lacks something (what is missing is named).
    """
    remedy = "give the PREFIX.zarr of a finished run of pfb image or pfb clean"
    metadata = Path(path) / "zarr.json"
    if not metadata.is_file():
        what = "does not exist" if not Path(path).exists() else "is not a zarr 3 store"
        raise InputError(f"{path} {what}; {remedy}")
    try:
        ds = xr.open_zarr(path, consolidated=False, chunks=None)
    except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} cannot be read as a dataset ({error}); {remedy}") from error
    if "schema" not in ds.attrs or ds.attrs.get("maker") not in MAKERS:
        raise InputError(f"{path} was not written by pfb: it has no attributes schema and maker; {remedy}")
    if ds.attrs["schema"] != SCHEMA_VERSION:
        raise InputError(
            f"{path} has schema {ds.attrs['schema']}, of another release of pfb, but this one reads schema {SCHEMA_VERSION}, "
            "which has an axis of Stokes products; make it again"
        )
    if not ds.attrs.get("finished"):
        raise InputError(f"{path} is unfinished; {remedy}")
    if needs == "clean" and ds.attrs["maker"] == "image":
        raise InputError(f"{path} was made by pfb image and has no model; make one with pfb clean")
    _check_variables(path, ds)
    return ds.set_coords("freq").assign_coords(stokes=list(products(ds)))


def geometry(ds: xr.Dataset) -> Geometry:
    """Return the pixel grid of the images of a dataset."""
    return Geometry(**ds.attrs["geometry"])


def observation(ds: xr.Dataset) -> Observation:
    """Return who observed what."""
    told = dict(ds.attrs["observation"])
    angles = tuple((float(angle), float(weight)) for angle, weight in told.pop("parallactic", ()))
    return Observation(**told, parallactic=angles)


def products(ds: xr.Dataset) -> str:
    """Return the Stokes products in the order of their axis, e.g. ``IQUV``."""
    return "".join(ds.attrs["stokes"])


def place_of_i(path: str | Path, ds: xr.Dataset) -> int:
    """Return the place of Stokes I among the products of a dataset; raises `InputError` if it has none."""
    found = products(ds)
    if "I" not in found:
        raise InputError(f"{path} has Stokes {', '.join(found)} but no Stokes I; give the dataset of a run that has")
    return found.index("I")


def bands(ds: xr.Dataset) -> list[Band]:
    """Return the imaging bands, with their effective frequencies."""
    columns = zip(*(ds[name].values.tolist() for name in ("freq_min", "freq_max", "freq")), strict=True)
    return [Band(index=i, freq_min=low, freq_max=high, freq=freq) for i, (low, high, freq) in enumerate(columns)]


def variables(maker: str, bases: Sequence[str]) -> dict[str, Variable]:
    """Return what of the schema a store has, by the command that makes it and the bases of its prior, if it has one."""
    return {name: own for name, own in SCHEMA.items() if maker in own.makers and (bases or not own.prior)}


def _check_variables(path: str | Path, ds: xr.Dataset) -> None:
    expected = variables(ds.attrs["maker"], ds.attrs.get("bases", ()))
    missing = [name for name in expected if name not in ds]
    missing += [f"attribute {name}" for name in ("geometry", "observation", "stokes") if name not in ds.attrs]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; make it again")
    for name, variable in expected.items():
        if ds[name].dims != variable.dims:
            raise InputError(f"{name} of {path} has dimensions {ds[name].dims} but needs {variable.dims}; make it again")
    try:
        shape = geometry(ds).shape
        observation(ds)
    except TypeError as error:
        raise InputError(f"the attributes geometry and observation of {path} are damaged ({error}); make it again") from error
    if ds["dirty"].shape[2:] != shape:
        raise InputError(f"the images of {path} have shape {ds['dirty'].shape[2:]} but its geometry says {shape}; make it again")
    if ds.sizes["stokes"] != len(products(ds)):
        raise InputError(f"{path} has {ds.sizes['stokes']} products but names {products(ds)}; make it again")


def _select(path: str | Path, name: str, plane: Plane | None, mode: Literal["r", "r+"]) -> tuple[zarr.Array, tuple[Any, ...]]:
    if name not in SCHEMA:
        raise InputError(f"a dataset has no variable {name}; it may have {', '.join(SCHEMA)}")
    try:
        array = zarr.open_array(Path(path) / name, mode=mode)
    except FileNotFoundError as error:
        raise InputError(f"{path} has no variable {name}; make it again") from error
    if plane is None:
        return array, (slice(None),) * array.ndim
    sizes = dict(zip(SCHEMA[name].dims, array.shape, strict=True))
    for dim, what in (("stokes", "product"), ("band", "band")):
        if dim in sizes and not 0 <= getattr(plane, dim) < sizes[dim]:
            raise InputError(f"{path} has {what}s 0 to {sizes[dim] - 1} but {what} {getattr(plane, dim)} was asked for")
    return array, tuple(getattr(plane, dim) if dim in PLANE else slice(None) for dim in sizes)


def _chunks(dims: tuple[str, ...], shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Chunks of one plane and basis, cut along the first of the other axes until they are small enough."""
    chunks = [1 if dim in (*PLANE, "basis") else max(n, 1) for dim, n in zip(dims, shape, strict=True)]
    for axis, n in enumerate(chunks):
        if n > 1 and np.prod(chunks) * itemsize > CHUNK_BYTES:
            most = max(1, CHUNK_BYTES // (itemsize * int(np.prod(chunks)) // n))
            # Of equal size, so that the last one is no sliver.
            chunks[axis] = -(-n // -(-n // most))
    return tuple(chunks)


def _attributes(layout: Layout) -> dict[str, Any]:
    return dict(
        schema=SCHEMA_VERSION,
        maker=layout.maker,
        finished=False,
        geometry=asdict(layout.geometry),
        observation=asdict(layout.observation),
        options=dict(layout.options),
        stokes=list(layout.products),
        **({} if layout.primary_beam is None else {"primary_beam": dict(layout.primary_beam)}),
        bases=list(layout.bases),
        nlevels=layout.nlevels,
        beam_parameters=list(BEAM_PARAMETERS),
        software={"pfb": __version__} | {name: found for name in PACKAGES if (found := _version(name))},
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
