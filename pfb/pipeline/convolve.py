"""`pfb convolve`: bring images to one beam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pfb.config import Convolve
from pfb.errors import InputError
from pfb.io.dataset import open_dataset
from pfb.io.planes import Planes, open_planes, planes_file
from pfb.io.staging import require_writable, staged
from pfb.kernels.beam import common_beam, describe, encloses, spread
from pfb.kernels.smoothing import Brightness, smooth
from pfb.pipeline.beams import read_beam
from pfb.pipeline.products import write_products
from pfb.pipeline.reporting import Reporter
from pfb.types import Beam, Real

KINDS = {"image": ("dirty",), "clean": ("dirty", "residual", "image")}
"""Images of a dataset that have a beam."""


def run(paths: tuple[str, ...], config: Convolve, report: Reporter) -> None:
    """Write every image with all its planes in one beam, as a file of its own.

    Parameters
    ----------
    paths : tuple of str
        FITS images, or datasets of finished runs, of which the dirty, residual and restored images are taken.
    config : Convolve
        Options of the command.
    report : Reporter
        Is told the beam, the progress and the files.

    Raises
    ------
    InputError
        If a file is no image or has no beam, the beam asked for is narrower than one that there is, or a product exists.
    """
    asked = None if config.beam is None else read_beam("--beam", config.beam)
    native = None if config.native_beam is None else read_beam("--native-beam", config.native_beam)
    with ExitStack() as stack:
        files = stack.enter_context(as_files(paths, report))
        images = [(open_planes(file), final(file, place, config)) for file, place in files]
        outputs = [output for _, output in images]
        for output in outputs:
            if outputs.count(output) > 1:
                raise InputError(f"several images would be written as {output}: give files of other names, or one at a time")
        require_writable(outputs, config.overwrite)
        beams = [known_beams(image, native) for image, _ in images]
        target = asked or smallest(images, beams)
        for (image, _), own in zip(images, beams, strict=True):
            require_wider(target, image.path, own)
        report.message(f"all planes are brought to the beam {describe(target)}")
        with report.stage("convolve", sum(len(own) for own in beams)) as done:
            for (image, output), own in zip(images, beams, strict=True):
                temporary = stack.enter_context(staged(output, config.overwrite))
                with planes_file(image, target, unit_after(image), temporary) as put:
                    for plane, beam in zip(image.read(), own, strict=True):
                        put(convolved(plane, image, beam, target))
                        done(1)
    report.summary("Convolved images", {output.name: str(output.parent) for output in outputs})


@contextmanager
def as_files(paths: Sequence[str], report: Reporter) -> Iterator[list[tuple[Path, Path]]]:
    """Yield FITS files, and the place of each that its product is named after; those of datasets are made and removed again."""
    found = []
    with ExitStack() as stack:
        for path in map(Path, paths):
            if not path.is_dir():
                found.append((path, path))
                continue
            maker = open_dataset(path).attrs["maker"]
            folder = stack.enter_context(TemporaryDirectory(prefix=".pfb-convolve-", dir=path.absolute().parent))
            prefix = Path(folder, path.with_suffix("").name)
            for file in write_products(path, prefix, kinds=KINDS[maker], report=report, nthreads=0):
                found.append((file, path.parent / file.name))
        yield found


def final(file: Path, place: Path, config: Convolve) -> Path:
    """Return where the product of a file goes."""
    name = place.name.removesuffix(".gz").removesuffix(".fz")
    folder = place.parent if config.output is None else Path(config.output)
    return folder / f"{Path(name).stem}-{config.suffix}.fits"


def brightness_of(image: Planes) -> Brightness:
    """Return what the values of an image are for, by its unit; without one it is the beam."""
    unit = str(image.header.get("BUNIT", "")).lower()
    if not unit.strip() or "beam" in unit:
        return Brightness.BEAM
    return Brightness.PIXEL if "pix" in unit else Brightness.SURFACE


def unit_after(image: Planes) -> str:
    """Return the unit of the product; of Jy/beam in the one spelling that all programs read."""
    unit = str(image.header.get("BUNIT", "")).strip()
    if brightness_of(image) is Brightness.SURFACE:
        return unit
    prefix = next((p for p in ("m", "u", "\N{MICRO SIGN}", "k") if f"{p}jy" in unit.lower().replace(" ", "")), "")
    return f"{prefix.replace(chr(0xB5), 'u')}Jy/beam"


def known_beams(image: Planes, native: Beam | None) -> list[Beam | None]:
    """Return the beam of every plane; None for images in Jy/pixel, which have none.

    Raises
    ------
    InputError
        If the file says none and `native` is not given.
    """
    if brightness_of(image) is Brightness.PIXEL:
        return [None] * len(image.beams)
    beams = [beam or native for beam in image.beams]
    if all(beam is None for beam in beams):
        raise InputError(
            f"{image.path} says nothing of its beam (BMAJ, BMIN, BPA or a table BEAMS): give it with --native-beam"
        )
    for number, (beam, plane) in enumerate(zip(beams, image.read() if None in beams else beams, strict=True), 1):
        if beam is None and np.isfinite(plane).any():  # type: ignore[arg-type]
            raise InputError(f"plane {number} of {image.path} is not blank but has no beam: give one with --native-beam")
    return beams


def smallest(images: Sequence[tuple[Planes, Path]], beams: Sequence[Sequence[Beam | None]]) -> Beam:
    """Return the smallest beam that encloses those of all planes.

    Raises
    ------
    InputError
        If no image has a beam, or all have the same.
    """
    known = [beam for own in beams for beam in own if beam]
    if not known:
        raise InputError(f"{images[0][0].path} has no beam, since it is in Jy/pixel: say which it shall have with --beam")
    if len(set(known)) == 1 and len(known) == sum(map(len, beams)):
        raise InputError(f"all planes have the beam {describe(known[0])} already: say which they shall have with --beam")
    return common_beam(list(dict.fromkeys(known)))


def require_wider(target: Beam, path: str, beams: Sequence[Beam | None]) -> None:
    """Raise `InputError` if a plane's beam is wider than the target in any direction."""
    for number, beam in enumerate(beams, 1):
        if beam and not encloses(target, beam):
            raise InputError(
                f"the beam {describe(target)} is narrower than the beam {describe(beam)} of plane {number} of {path}; "
                "choose a wider one, or leave out --beam for the smallest that encloses all"
            )


def convolved(plane: Real, image: Planes, beam: Beam | None, target: Beam) -> Real:
    """Bring a plane to the target beam; a blank one stays as it is."""
    brightness = brightness_of(image)
    if beam is None and brightness is not Brightness.PIXEL:
        return plane
    native = None if beam is None else in_pixels(beam, image.pixel)
    return smooth(plane, native, in_pixels(target, image.pixel), brightness, nthreads=0)


def in_pixels(beam: Beam, pixel: Real) -> Real:
    """Return the spread of a beam along the axes of an image, in pixels squared."""
    # `spread` counts x to the West.
    east = np.diag([-1.0, 1.0])
    inverse: Real = np.linalg.inv(pixel)
    return inverse @ east @ spread(beam) @ east @ inverse.T
