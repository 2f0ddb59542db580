"""The products of a run: its images as FITS and a picture, made from the finished dataset.

The dataset is raw. A plane of a cube is ``raw_b / wsum_b``, in Jy per beam of its own PSF; an
MFS image is ``sum_b raw_b / sum_b wsum_b``, the PSF alike, so that both peak at one. The MFS
model is the mean of the bands' models with the weights ``wsum_b``. Each Stokes product has weights, a PSF and
files of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from pfb.errors import InputError
from pfb.io import dataset as store
from pfb.io.apparent import apparent_model
from pfb.io.fits import HeaderInfo, write_cube, write_mfs
from pfb.io.picture import Panel, quicklook
from pfb.io.staging import require_writable, staged
from pfb.kernels.beam import common_beam, describe, encloses, fit_lobe, restore
from pfb.pipeline.corrected import KINDS as CORRECTED
from pfb.pipeline.corrected import Correction, Primary, stored
from pfb.pipeline.reporting import Reporter, Silent
from pfb.types import Band, Beam, Plane, Real

KINDS = {"image": ("dirty", "psf", "quicklook"), "clean": ("dirty", "psf", "model", "residual", "image", "quicklook")}

Choice = Beam | Literal["native", "common"]


def kinds_of(maker: str, primary: bool) -> tuple[str, ...]:
    """Return the products of a command, with a primary beam or without."""
    return KINDS[maker] + (CORRECTED if primary and maker == "clean" else ())


def product_paths(prefix: str | Path, kinds: Sequence[str], products: str = "I") -> dict[str, list[Path]]:
    """Return the files of each kind: its MFS image and its cube of each Stokes product, or the picture.

    Parameters
    ----------
    prefix : str or Path
        What their names begin with.
    kinds : sequence of str
        ``KINDS["clean"]``, ``KINDS["image"]`` or some of them.
    products : str
        Stokes products; their letters are in the names unless there is only I.
    """
    letters = [""] if products == "I" else [f"-{product}" for product in products]
    paths = {}
    for kind in kinds:
        each = [f"{letter}-{kind}-{what}.fits" for letter in letters for what in ("mfs", "cube")]
        paths[kind] = [Path(f"{prefix}{suffix}") for suffix in (["-quicklook.png"] if kind == "quicklook" else each)]
    return paths


def write_products(
    dataset: str | Path,
    prefix: str | Path,
    *,
    kinds: Sequence[str] = (),
    beam: Choice = "native",
    overwrite: bool = False,
    report: Reporter | None = None,
    nthreads: int = 1,
    primary: Correction | None = None,
    inspect: Callable[[Images], None] | None = None,
) -> list[Path]:
    """Write images and the picture of a finished run; all appear when all are complete.

    A band without data has blank (NaN) planes, except in the model. Few planes are in memory at a time.

    Parameters
    ----------
    dataset : str or Path
        The store of the run.
    prefix : str or Path
        What the names of the products begin with.
    kinds : sequence of str
        What to write; by default all that the store allows: without a model dirty image, PSF and picture.
    beam : Beam or {"native", "common"}
        Restoring beam: each image's own, the smallest one that encloses them all, or a given one.
    overwrite : bool
        Whether products that exist are replaced.
    report : Reporter, optional
        Is told the progress.
    nthreads : int
        Threads of the Fourier transforms; 0 uses all.
    primary : callable, optional
        Gives the beams to correct the images of a Stokes product for; by default those of the store, if it has some.
    inspect : callable, optional
        Is given the images of the leading Stokes product once they are written, while they are at hand.

    Returns
    -------
    list of Path
        The files that were written.

    Raises
    ------
    InputError
        If the store is unusable, a kind is unknown to it, a file cannot be written, or the beam is too narrow.
    """
    report = report or Silent()
    ds = store.open_dataset(dataset)
    maker, products = ds.attrs["maker"], store.products(ds)
    images = images_of(dataset, beam, report, nthreads, primary)
    known = kinds_of(maker, images[0].primary is not None)
    kinds = kinds or known
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise InputError(f"{dataset} was made by pfb {maker} and gives no {', '.join(unknown)}; choose from {', '.join(known)}")
    paths = product_paths(prefix, kinds, products)
    files = [path for group in paths.values() for path in group]
    require_writable(files, overwrite)
    with ExitStack() as stack, report.stage("products", len(files)) as done:
        for kind, group in paths.items():
            _write(images, kind, [stack.enter_context(staged(path, overwrite)) for path in group])
            done(len(group))
        if inspect:
            inspect(leading(images))
    return files


def images_of(
    dataset: str | Path, beam: Choice, report: Reporter, nthreads: int, primary: Correction | None = None
) -> list[Images]:
    """Return the images of each Stokes product of a finished run; parameters as of `Images`.

    The common beam, if it is asked for, encloses the beams of all of them.

    Raises
    ------
    InputError
        If the store is unusable or has no data.
    """
    products = store.products(store.open_dataset(dataset))
    images = [Images(dataset, beam, report, nthreads, s, primary) for s in range(len(products))]
    if not any(own.good for own in images):
        raise InputError(f"{dataset} has no band with data; relax the selection or the flags and make it again")
    if beam == "common":
        target = common_beam([found for own in images if own.good for found in (*own.natives, own.native) if found])
        for own in images:
            own.beam = target
    return images


def leading(images: Sequence[Images]) -> Images:
    """Return the images of I if it has data, else of the first product that has."""
    return min((own for own in images if own.good), key=lambda own: own.product != "I")


def _write(images: Sequence[Images], kind: str, paths: Sequence[Path]) -> None:
    if kind == "quicklook":
        first = leading(images)
        quicklook(paths[0], _panels(first, images), first.geometry, title=_title(first))
        return
    for own, mfs, cube in zip(images, paths[::2], paths[1::2], strict=True):
        _write_product(own, kind, mfs, cube)


def _write_product(images: Images, kind: str, mfs: Path, cube: Path) -> None:
    if kind == "model":
        beams, beam = [], None
    elif kind in ("image", "image-pbcor"):
        *beams, beam = images.targets
    elif kind == "pb":
        beams, beam = [], None
    else:
        beams, beam = images.natives, images.native
    options = [f"{name} = {value}" for name, value in images.ds.attrs.get("options", {}).items() if value is not None]
    info = HeaderInfo(
        geometry=images.psf_geometry if kind == "psf" else images.geometry,
        observation=store.observation(images.ds),
        unit={"model": "Jy/pixel", "pb": ""}.get(kind, "Jy/beam"),
        kind="Primary beam" if kind == "pb" else "Intensity",
        stokes="IQUV".index(images.product) + 1,
        history=(f"pfb {images.ds.attrs['maker']}", *options),
    )
    write_mfs(mfs, images.mfs(kind), info, images.band, beam)
    write_cube(cube, images.planes(kind), info, images.bands, beams)


def _panels(images: Images, every: Sequence[Images]) -> list[Panel]:
    stokes = "" if images.product == "I" else f", Stokes {images.product}"
    if images.ds.attrs["maker"] == "image":
        return [
            Panel(title=f"Dirty image{stokes}", image=images.mfs("dirty"), unit="Jy/beam", beam=images.native),
            Panel(title="Point spread function", image=images.mfs("psf"), unit="Jy/beam", beam=images.native, kind="psf"),
        ]
    panels = [
        Panel(title=f"Residual{stokes}", image=images.mfs("residual"), unit="Jy/beam", beam=images.native, kind="residual"),
        Panel(title=f"Model{stokes}", image=images.mfs("model"), unit="Jy/pixel", kind="model"),
        Panel(title=f"Restored image{stokes}", image=images.mfs("image"), unit="Jy/beam", beam=images.targets[-1]),
    ]
    linear = [own for own in every if own.product in "QU" and own.good]
    if images.product == "I" and len(linear) == 2:
        q, u = (own.mfs("image") for own in linear)
        panels.append(Panel(title="Polarised intensity", image=np.hypot(q, u), unit="Jy/beam", beam=linear[0].targets[-1]))
    return panels


def _title(images: Images) -> str:
    observation, band = store.observation(images.ds), images.band
    frequencies = f"{band.freq_min / 1e9:.4g}\N{EN DASH}{band.freq_max / 1e9:.4g} GHz"
    return ", ".join(part for part in (observation.object, observation.telescope, frequencies) if part)


class Images:
    """The normalised images of a finished run, computed when they are asked for.

    Parameters
    ----------
    dataset : str or Path
        The store of the run.
    beam : Beam or {"native", "common"}
        Restoring beam, see `write_products`.
    report : Reporter
        Is told of beams that could not be fitted.
    nthreads : int
        Threads of the Fourier transforms; 0 uses all.
    stokes : int
        Place of the Stokes product among those of the run.
    primary : callable, optional
        Gives its primary beams; by default those of the store, if it has some.

    Attributes
    ----------
    product : str
        Its letter.
    good : list of int
        The bands that have data; if there are none all images are blank.

    Raises
    ------
    InputError
        If the store is unusable.
    """

    def __init__(
        self, dataset: str | Path, beam: Choice, report: Reporter, nthreads: int, stokes: int = 0,
        primary: Correction | None = None,
    ) -> None:  # fmt: skip
        self.path, self.beam, self.report, self.nthreads, self.stokes = dataset, beam, report, nthreads, stokes
        whole = store.open_dataset(dataset)
        self.ds, self.product = whole.isel(stokes=stokes), store.products(whole)[stokes]
        self.geometry, self.bands = store.geometry(self.ds), store.bands(self.ds)
        self.psf_geometry = replace(self.geometry, nx=self.ds.sizes["x_psf"], ny=self.ds.sizes["y_psf"])
        self.wsum: Real = self.ds["wsum"].values
        self.good = [band for band, weight in enumerate(self.wsum) if weight > 0]
        self.primary = (primary or stored)(dataset, self.ds, stokes)
        self._means: dict[str, Real] = {}

    @cached_property
    def band(self) -> Band:
        """The band of the MFS images, at the weighted mean frequency."""
        used = [self.bands[band] for band in self.good] or self.bands
        return Band(
            index=0,
            freq_min=min(band.freq_min for band in used),
            freq_max=max(band.freq_max for band in used),
            freq=float(np.average([band.freq for band in used], weights=self.wsum[self.good] if self.good else None)),
        )

    @cached_property
    def natives(self) -> list[Beam | None]:
        """The beam of each band's PSF, None without data."""
        return [self._native(band) if band in self.good else None for band in range(len(self.bands))]

    @cached_property
    def native(self) -> Beam | None:
        """The beam of the MFS PSF, None if it has no lobe."""
        return self._fit(self.mfs("psf"), "all bands together") if self.good else None

    @cached_property
    def targets(self) -> list[Beam | None]:
        """The restoring beam of each band, None without data, and last that of the MFS image."""
        natives = [*self.natives, self.native]
        if self.beam == "native":
            return natives
        target = self.beam if isinstance(self.beam, Beam) else common_beam([beam for beam in natives if beam])
        for name, beam in zip([*(f"band {band.index}" for band in self.bands), "the MFS image"], natives, strict=True):
            if beam and not encloses(target, beam):
                raise InputError(
                    f"the restoring beam {describe(target)} is narrower than the beam "
                    f"{describe(beam)} of {name}; choose a wider one or --common-beam"
                )
        return [target if beam else None for beam in natives]

    def mfs(self, kind: str) -> Real:
        """Return the (nx, ny) MFS image of a kind; NaN without data."""
        if not self.good:
            return self._blank(kind)
        if kind not in self._means:
            special = {"image": self._restored_mean, "image-pbcor": self._corrected_mean, "pb": self._effective}
            self._means[kind] = special[kind]() if kind in special else self._mean(kind)
        return self._means[kind]

    def planes(self, kind: str) -> Iterator[Real]:
        """Yield the (nx, ny) plane of each band; NaN without data, or without a beam if it is to be restored."""
        for band in range(len(self.bands)):
            if kind == "model" and self.good:
                yield self._read(kind, band)
            elif band not in self.good or (kind in ("image", "image-pbcor") and self.natives[band] is None):
                yield self._blank(kind)
            elif kind == "pb":
                yield self._known.of(band)
            elif kind == "image":
                yield self._restored(band)
            elif kind == "image-pbcor":
                yield self._known.correct(self._restored(band), band)
            else:
                yield self._read(kind, band) / self.wsum[band]

    def _blank(self, kind: str) -> Real:
        return np.full((self.psf_geometry if kind == "psf" else self.geometry).shape, np.nan)

    @property
    def _known(self) -> Primary:
        assert self.primary is not None
        return self.primary

    def _effective(self) -> Real:
        return self._known.effective

    def _restored(self, band: int) -> Real:
        residual = self._read("residual", band) / self.wsum[band]
        return self._restore(self._read("apparent", band), residual, self.natives[band], self.targets[band])

    def _mean(self, kind: str) -> Real:
        if kind == "apparent" and self.primary is None:
            return self.mfs("model")
        total: Real = np.zeros(())
        for band in self.good:
            total = total + self._read(kind, band) * (self.wsum[band] if kind in ("model", "apparent") else 1.0)
        return total / self.wsum[self.good].sum()

    def _restored_mean(self) -> Real:
        if self.native is None:
            raise InputError(f"the PSF of all bands together in {self.path} has no central lobe; make it again")
        return self._restore(self.mfs("apparent"), self.mfs("residual"), self.native, self.targets[-1])

    def _corrected_mean(self) -> Real:
        """Weigh every band by what its beam lets it say: the least-squares flux, whose noise is that of the MFS image over P."""
        model = self._known.mean(lambda band: self.wsum[band] * self._read("apparent", band))
        residual = self._known.mean(lambda band: self._read("residual", band))
        return self._known.correct(self._restore(model, residual, self.native, self.targets[-1]))

    def _restore(self, model: Real, residual: Real, native: Beam | None, target: Beam | None) -> Real:
        assert native is not None
        assert target is not None
        return restore(model, residual, self.geometry.cell, native, target, self.nthreads)

    def _read(self, name: str, band: int) -> Real:
        where = Plane(self.stokes, band)
        plane = apparent_model(self.path, where) if name == "apparent" else store.read(self.path, name, where)
        if not np.isfinite(plane).all():
            raise InputError(f"the {name} of band {band} in {self.path} is not finite everywhere; make it again")
        return plane

    def _native(self, band: int) -> Beam | None:
        stored = self.ds["beam"].values[band]
        if np.isfinite(stored).all():
            return Beam(*stored.tolist())
        return self._fit(self._read("psf", band), f"band {band}")

    def _fit(self, psf: Real, name: str) -> Beam | None:
        fit = fit_lobe(psf, self.geometry.cell)
        if fit is None:
            self.report.warning(f"the PSF of {name} has no central lobe, so there is no restored image of it")
            return None
        if not fit.least_squares:
            self.report.warning(f"no Gaussian fits the PSF of {name}; its beam is from the second moments of the lobe")
        return fit.beam
