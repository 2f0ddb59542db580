"""Which samples of measurement sets are imaged together: fields, windows, scans, channels, times, baselines and columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.io.columns import choose_columns, disagreements
from pfb.io.description import Field, RowGroup, SetDescription
from pfb.io.metadata import FRAMES, describe
from pfb.io.parallactic import observed_angles
from pfb.io.time_ranges import iso, parse_times
from pfb.io.uv_range import parse_uv_range
from pfb.io.window import Ranges, Window, first_time, longest_baseline, make_window, narrow, spectral_window
from pfb.types import Observation

# Radians: far below the pixels of any image, above the rounding of stored angles.
_SAME_CENTRE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What to use of a set, as the user writes it; None stands for the default.

    Ids and numbers are lists with inclusive ranges, ``0,2~4``.
    """

    field: str | None = None
    """Ids, names, or patterns of names. Default: the only field that owns rows, or the only one observed as a target."""
    spw: str | None = None
    """Ids of spectral windows. Default: all that own rows."""
    scan: str | None = None
    """Scan numbers. Default: all."""
    chan: str | None = None
    """Channels of every spectral window, in the stored order. Default: all."""
    time: str | None = None
    """Ranges of UTC, ``2024-06-10T06:00:00~2024-06-10T06:10:00``. Default: all."""
    min_uv: str | None = None
    """The shortest baselines used, in wavelengths, or with a unit: ``300m``, ``2klambda``. Default: all."""
    max_uv: str | None = None
    """The longest."""
    data_column: str | None = None
    """A column, or a sum such as ``CORRECTED_DATA-MODEL_DATA``. Default: CORRECTED_DATA if it holds visibilities, else DATA."""
    weight_column: str | None = None
    """Weights, or standard deviations if the name begins with SIGMA. Default: WEIGHT_SPECTRUM if it is usable, else WEIGHT;
    SIGMA_SPECTRUM or SIGMA only where a set has no column of weights."""


@dataclass(frozen=True, kw_only=True)
class SelectedData:
    """Everything that is imaged together: one phase centre, one window for each data description of each set."""

    ra: float
    """Right ascension of the phase centre in radians, 0 <= ra < 2 pi."""
    dec: float
    """Its declination in radians."""
    frame: str
    """``ICRS``, ``FK5`` or ``FK4``."""
    observation: Observation
    windows: tuple[Window, ...]
    dish_diameter: float
    """Median of a set's dishes, of the set with the smallest, in metres; 0 if no set says."""
    longest_baseline_wavelengths: float
    """Largest sqrt(u^2 + v^2) of rows that are not wholly flagged, at their highest selected frequency."""
    notes: tuple[str, ...]
    """What was decided by default, one sentence each."""
    warnings: tuple[str, ...] = ()
    """What is odd about the selected columns, one sentence each."""


class SelectedSet(NamedTuple):
    """What is selected of one set."""

    description: SetDescription
    windows: tuple[tuple[Field, Window], ...]
    """A window for each field and data description, its columns not yet chosen."""


def select(paths: Sequence[str], selection: Selection) -> SelectedData:
    """Find the samples to image and check, before any work is done, that they can be imaged together.

    Parameters
    ----------
    paths
        Directories of measurement sets.
    selection
        What to use of each of them. An id or name must exist in at least one set.

    Raises
    ------
    InputError
        For a set, id, name, channel or column that does not exist; a set given twice; a
        default that is not unique; different phase centres; weights that are all zero; nothing left, or
        nothing left unflagged.
    """
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise InputError(f"{', '.join(paths)} name a set twice, which would count its samples twice; give each set once")
    sets = [describe(os.path.normpath(path)) for path in paths]
    notes: list[str] = []
    groups = choose_groups(sets, selection, notes)
    centre = _common_centre(sets, groups)
    windows: list[Window] = []
    warnings: list[str] = []
    for drafts, d in zip(_drafts(sets, groups, selection, notes), sets, strict=True):
        filled, decided = choose_columns(d, drafts, selection.data_column, selection.weight_column) if drafts else ([], [])
        windows += filled
        notes += decided
        warnings += [f"{d.path}: {sentence}" for sentence in disagreements(filled)] if filled else []
    diameters = [d.dish_diameter for d, own in zip(sets, groups, strict=True) if own and d.dish_diameter > 0]
    return SelectedData(
        ra=centre.ra,
        dec=centre.dec,
        frame=centre.frame,
        observation=replace(
            _observation(sets, groups, windows if selection.time else []),
            parallactic=tuple(
                angle
                for d, own in zip(sets, groups, strict=True)
                for angle in observed_angles(d, own, centre, _times(selection))
            ),
        ),
        windows=tuple(windows),
        dish_diameter=min(diameters, default=0.0),
        longest_baseline_wavelengths=_longest_baseline_wavelengths(sets, windows, selection, notes),
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def choose_groups(sets: list[SetDescription], selection: Selection, notes: list[str]) -> list[list[RowGroup]]:
    """Return the groups of rows of every set that fields, spectral windows and scans leave; `notes` gets what was decided.

    Raises `InputError` for an id, name or number that no set has, a default that is not unique, or if nothing is left.
    """
    fields = _choose_fields(sets, selection.field, notes)
    spws = _choose_numbers(sets, selection.spw, "--spw", [{w.id for w in d.spectral_windows} for d in sets])
    scans = _choose_numbers(sets, selection.scan, "--scan", [set(d.scans) for d in sets])
    times = _times(selection)
    groups = [
        [
            g for g in d.groups
            if g.rows > g.autocorrelations and g.field in f and _spw(d, g) in s and g.scan in n
            and any(a <= g.end and g.start <= b for a, b in times)
        ]
        for d, f, s, n in zip(sets, fields, spws, scans, strict=True)
    ]  # fmt: skip
    _require_rows(sets, groups, selection)
    return groups


def select_fields(paths: Sequence[str], selection: Selection) -> tuple[list[SelectedSet], list[str]]:
    """Find the rows of measurement sets field by field; unlike what `select` finds they may have several phase centres.

    Columns are not looked at, so flagged and weightless samples are found as well.

    Returns
    -------
    sets, notes
        A set from which nothing is selected is left out; a sentence for each default that was decided.

    Raises
    ------
    InputError
        As `select`, of what has to do with rows and channels.
    """
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise InputError(f"{', '.join(paths)} name a set twice; give each set once")
    sets = [describe(os.path.normpath(path)) for path in paths]
    notes: list[str] = []
    groups = choose_groups(sets, selection, notes)
    found = []
    for d, own in zip(sets, groups, strict=True):
        parts = []
        for f in d.fields:
            if f.frame not in FRAMES.values() and any(g.field == f.id for g in own):
                raise InputError(f"{d.path}: field {f.id} ({f.name}) has its centre in {f.frame}; J2000, ICRS or B1950 is needed")
            alike = [g for g in own if g.field == f.id]
            parts += [(f, w) for w in _drafts([d], [alike], selection, notes)[0]] if alike else []
        if parts:
            found.append(SelectedSet(d, tuple(parts)))
    return found, list(dict.fromkeys(notes))


def parse_ranges(text: str, option: str) -> Ranges:
    """Read ``0,2~4`` as [(0, 0), (2, 4)]; raises `InputError`, naming the option, for anything else."""
    ranges = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:~(\d+))?", item.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InputError(f"{option}: cannot read {item.strip()!r}; write numbers and inclusive ranges, e.g. 0,2~4")
        ranges.append((first, last))
    return ranges


def list_ranges(numbers: Iterable[int]) -> str:
    """Write numbers as `parse_ranges` reads them, e.g. ``0,2~4``."""
    ordered = np.array(sorted(set(numbers)))
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1) if len(ordered) else []
    return ",".join(f"{r[0]}~{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)


def _times(selection: Selection) -> tuple[tuple[float, float], ...]:
    return ((-np.inf, np.inf),) if selection.time is None else parse_times(selection.time)


def _choose_numbers(sets: list[SetDescription], text: str | None, option: str, existing: list[set[int]]) -> list[set[int]]:
    if text is None:
        return existing
    ranges = parse_ranges(text, option)
    everywhere = set().union(*existing)
    for first, last in ranges:
        if not any(first <= number <= last for number in everywhere):
            listed = "; ".join(f"{d.path} has {list_ranges(own)}" for d, own in zip(sets, existing, strict=True))
            raise InputError(f"{option} {list_ranges(range(first, last + 1))} matches nothing: {listed}; choose among those")
    return [{number for number in own if any(a <= number <= b for a, b in ranges)} for own in existing]


def _choose_fields(sets: list[SetDescription], text: str | None, notes: list[str]) -> list[set[int]]:
    if text is None:
        return [_default_field(d, notes) for d in sets]
    names = {f.name for d in sets for f in d.fields}
    chosen: list[set[int]] = [set() for _ in sets]
    for item in [text] if text in names else [part.strip() for part in text.split(",")]:
        numbers = parse_ranges(item, "--field") if re.fullmatch(r"\d+(~\d+)?", item) and item not in names else []
        found = [{f.id for f in d.fields if f.name == item or any(a <= f.id <= b for a, b in numbers)} for d in sets]
        if not any(found):
            # A pattern means the fields that own rows: a set's table of fields may list hundreds without.
            found = [{f.id for f in d.fields if f.rows and fnmatchcase(f.name, item)} for d in sets]
        if not any(found):
            listed = "; ".join(f"{d.path} has {_list_fields(d.fields)}" for d in sets)
            raise InputError(f"--field {item} is no id and no name of a field: {listed}; choose among those")
        chosen = [old | new for old, new in zip(chosen, found, strict=True)]
    return chosen


def _default_field(d: SetDescription, notes: list[str]) -> set[int]:
    observed = [f for f in d.fields if any(g.field == f.id and g.rows > g.autocorrelations for g in d.groups)]
    targets = [f for f in observed if f.is_target]
    if len(observed) > 1 and len(targets) == 1:
        notes.append(f"{d.path}: field {_list_fields(targets)} is imaged, the only one observed as a target")
        return {targets[0].id}
    if len(observed) > 1:
        raise InputError(f"{d.path} holds several fields: {_list_fields(observed)}; choose one with --field")
    return {f.id for f in observed}


def _list_fields(fields: Iterable[Field]) -> str:
    return ", ".join(f"{f.id} ({f.name})" for f in fields)


def _spw(d: SetDescription, group: RowGroup) -> int | None:
    return next((x.spw for x in d.data_descriptions if x.id == group.data_desc_id), None)


def _require_rows(sets: list[SetDescription], groups: list[list[RowGroup]], selection: Selection) -> None:
    if any(groups):
        return
    paths = ", ".join(d.path for d in sets)
    given = _given(selection, "field", "spw", "scan", "time")
    if all(d.rows == d.autocorrelations for d in sets):
        raise InputError(f"{paths} has no rows of two different antennas, which imaging needs; use another set")
    observed = f" (observed {_observed(sets)})" if selection.time else ""
    raise InputError(
        f"{given or 'the default selection'} leaves no rows of {paths}{observed}, without autocorrelations; select more"
    )


def _given(selection: Selection, *names: str) -> str:
    """Write options as the user gave them."""
    values = [(name.replace("_", "-"), getattr(selection, name)) for name in names]
    return " with ".join(f"--{name} {value}" for name, value in values if value is not None)


def _observed(sets: list[SetDescription]) -> str:
    return f"{iso(min(d.start for d in sets if d.rows))} to {iso(max(d.end for d in sets if d.rows))} UTC"


def _common_centre(sets: list[SetDescription], groups: list[list[RowGroup]]) -> Field:
    used = [(d, f) for d, own in zip(sets, groups, strict=True) for f in d.fields if any(g.field == f.id for g in own)]
    _, centre = used[0]
    for d, f in used:
        if f.frame not in FRAMES.values():
            raise InputError(f"{d.path}: field {f.id} ({f.name}) has its centre in {f.frame}; J2000, ICRS or B1950 is needed")
        if f.frame != centre.frame or np.linalg.norm(_direction(f) - _direction(centre)) > _SAME_CENTRE:
            listed = "; ".join(f"{x.path} field {_list_fields([y])}" for x, y in used)
            raise InputError(f"the selected fields have different phase centres: {listed}; image them one at a time (--field)")
    return centre


def _direction(f: Field) -> NDArray[np.float64]:
    return np.array([np.cos(f.dec) * np.cos(f.ra), np.cos(f.dec) * np.sin(f.ra), np.sin(f.dec)])


def _drafts(
    sets: list[SetDescription], groups: list[list[RowGroup]], selection: Selection, notes: list[str]
) -> list[list[Window]]:
    """Make the windows of each set, their columns not yet known."""
    times = parse_times(selection.time) if selection.time is not None else None
    uv = parse_uv_range(selection.min_uv, selection.max_uv)
    sizes = {len(spectral_window(d, g.data_desc_id).freq) for d, own in zip(sets, groups, strict=True) for g in own}
    ranges = [(0, max(sizes) - 1)] if selection.chan is None else parse_ranges(selection.chan, "--chan")
    if max(last for _, last in ranges) >= max(sizes):
        listed = ", ".join(map(str, sorted(sizes)))
        raise InputError(f"--chan {selection.chan} goes beyond the last channel: windows have {listed} channels; choose fewer")
    drafts = []
    for d, own in zip(sets, groups, strict=True):
        alike = [[g for g in own if g.data_desc_id == x.id] for x in d.data_descriptions]
        made = [make_window(d, part, _scans(part) if selection.scan else None, ranges) for part in alike if part]
        notes += [f"{d.path}: --chan leaves nothing of spectral window {w.spw}" for w in made if not len(w.freq)]
        drafts.append([w for w in made if len(w.freq)])
        _require_frequencies(d, drafts[-1], notes)
    if not any(drafts):
        raise InputError(f"--chan {selection.chan} leaves no channel of any spectral window; choose others")
    narrowed = [narrow(own, times, uv) for own in drafts]
    if not any(w.rows for own in narrowed for w in own):
        given = _given(selection, "field", "spw", "scan", "time", "min_uv", "max_uv")
        paths = ", ".join(d.path for d in sets)
        raise InputError(f"{given} leaves no rows of {paths} (observed {_observed(sets)}); pfb info lists times and baselines")
    return [[w for w in own if w.rows] for own in narrowed]


def _require_frequencies(d: SetDescription, windows: list[Window], notes: list[str]) -> None:
    for w in windows:
        if not (np.isfinite(w.freq) & (w.freq > 0)).all():
            raise InputError(f"spectral window {w.spw} of {d.path} has channels of no positive frequency: repair its CHAN_FREQ")
        if not (w.width > 0).all():
            raise InputError(f"spectral window {w.spw} of {d.path} has channels of no width: write CHAN_WIDTH in Hz into the set")
        if not d.spectral_windows[w.spw].width[w.channels].any():
            notes.append(f"{d.path}: spectral window {w.spw} has no CHAN_WIDTH, so the distance of its channels is taken")


def _scans(groups: list[RowGroup]) -> tuple[int, ...]:
    return tuple(sorted({g.scan for g in groups}))


def _observation(sets: list[SetDescription], groups: list[list[RowGroup]], timed: list[Window]) -> Observation:
    """Say what was observed; `timed` are the windows if only some times are selected, which groups do not know."""
    used = [(d, own) for d, own in zip(sets, groups, strict=True) if own]
    names = dict.fromkeys(f.name for d, own in used for f in d.fields if any(g.field == f.id for g in own))
    return Observation(
        telescope=used[0][0].telescope,
        object=", ".join(names),
        observer=used[0][0].observer,
        start=min(first_time(w) for w in timed) if timed else min(g.start for _, own in used for g in own),
    )


def _longest_baseline_wavelengths(
    sets: list[SetDescription], windows: list[Window], selection: Selection, notes: list[str]
) -> float:
    given = {os.path.abspath(d.path): d.path for d in sets}
    longest = [(w, longest_baseline(w)) for w in windows]
    used = [baseline.wavelengths for _, baseline in longest if baseline is not None]
    limits = _given(selection, "min_uv", "max_uv")
    within = f" within {limits}" if limits else ""
    if not used:
        paths = ", ".join(given[path] for path in dict.fromkeys(w.path for w in windows))
        raise InputError(f"all selected samples of {paths}{within} are flagged; select others or unflag some")
    flagged = [w for w, baseline in longest if baseline is None]
    notes += [f"{given[w.path]}: all selected samples of spectral window {w.spw}{within} are flagged" for w in flagged]
    return max(used)
