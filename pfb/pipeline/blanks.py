"""What of the data is not there: planes without samples, columns of zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pfb.pipeline.planning import Plan
from pfb.pipeline.reporting import Reporter
from pfb.types import Plane, Visibilities


def warn_of_blanks(plan: Plan, planes: Sequence[Plane], report: Reporter) -> None:
    """Name the products and the bands that have no data; `planes` are those that have."""
    found = {plane.stokes for plane in planes}
    for s, product in enumerate(plan.products):
        if s not in found:
            report.warning(f"Stokes {product} has no unflagged data: all its images are blank")
    for band in plan.bands:
        empty = [plan.products[s] for s in sorted(found) if Plane(s, band.index) not in planes]
        if empty:
            stokes = "" if len(empty) == len(found) else f" of Stokes {', '.join(empty)}"
            report.warning(
                f"band {band.index} ({band.freq_min / 1e6:.6g} - {band.freq_max / 1e6:.6g} MHz) has no unflagged data{stokes}: "
                "its images are blank and its model is interpolated"
            )


def only_zeros(band: Sequence[Visibilities]) -> dict[int, bool]:
    """Say of every window of a plane that has samples whether all are zero."""
    found: dict[int, bool] = {}
    for part in band:
        if part.weight.any():
            found[part.window] = found.get(part.window, True) and not part.vis.any()
    return found


def warn_of_zeros(plan: Plan, report: Reporter, found: Sequence[Mapping[int, bool]]) -> None:
    """Name the sets, or the spectral windows of a set, whose data column was made but never filled.

    Only Stokes I must differ from zero, so nothing is said without it.
    """
    if "I" not in plan.products:
        return
    verdicts: dict[tuple[str, str], dict[int, bool]] = {}
    for windows, parts in zip(plan.windows, found[plan.products.index("I") :: len(plan.products)], strict=True):
        for number, zero in parts.items():
            window = windows[number]
            own = verdicts.setdefault((window.path, window.data_column), {})
            own[window.spw] = own.get(window.spw, True) and zero
    for (path, column), own in verdicts.items():
        empty = sorted(spw for spw, zero in own.items() if zero)
        where = "" if len(empty) == len(own) else f" in spectral window{'s' * (len(empty) > 1)} {', '.join(map(str, empty))}"
        if empty:
            report.warning(f"{column} of {path} holds only zeros{where}: choose another column with --data-column, or fill it")
