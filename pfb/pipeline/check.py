"""`pfb check`: try all that could fail in a run of `pfb clean`, without running it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from pfb.config import Check, Clean
from pfb.errors import InputError
from pfb.io import model_column
from pfb.io.baselines import check_baselines
from pfb.io.measurement_set import SelectedData
from pfb.io.metadata import describe
from pfb.io.plausibility import check_metadata
from pfb.io.quality import check_columns
from pfb.io.remarks import FAILS, OK, UNTRIED, WARNING, Remark
from pfb.pipeline import clean
from pfb.pipeline.budget import Size
from pfb.pipeline.checkpoint import Safety
from pfb.pipeline.forecast import announce
from pfb.pipeline.imaging import preflight, require_data
from pfb.pipeline.planning import Plan
from pfb.pipeline.reporting import Reporter, Silent
from pfb.pipeline.sampling import Looked, look
from pfb.pipeline.session import look_at
from pfb.pipeline.streaming import settle

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

ON_OUTPUT = ("output", "checkpoint", "disk")
"""Steps that need to know where the products would go."""


@dataclass(frozen=True)
class Findings:
    """All remarks on a run."""

    sets: tuple[str, ...]
    remarks: tuple[Remark, ...]

    @property
    def verdict(self) -> str:
        """``fails`` if the run would be refused, ``warning`` if something is odd, else ``ok``."""
        return next((v for v in (FAILS, WARNING) if any(r.verdict == v for r in self.remarks)), OK)

    @property
    def exit_code(self) -> int:
        """2 if the run would be refused, as it would itself; else 0."""
        return InputError.exit_code if self.verdict == FAILS else 0

    def tables(self) -> list[Table]:
        """Return (title, columns, rows) of what there is to show."""
        return [(", ".join(self.sets), ("check", "verdict", "detail"), [tuple(r) for r in self.remarks])]

    def sentence(self) -> str:
        """Say what comes of it."""
        failed, warned = (sum(r.verdict == v for r in self.remarks) for v in (FAILS, WARNING))
        if failed:
            return f"pfb clean cannot work: {failed} of these checks fail{'s' * (failed == 1)}"
        return "pfb clean can work" + f", but {warned} of these checks warn{'s' * (warned == 1)}" * bool(warned)

    def record(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "verdict": self.verdict, "sentence": self.sentence(), "sets": list(self.sets),
            "checks": [r._asdict() for r in self.remarks],
        }  # fmt: skip


class Told(Silent):
    """Remembers what a step said."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.warnings: list[str] = []

    def message(self, text: str) -> None:
        """Remember a sentence."""
        self.messages.append(text)

    def warning(self, text: str) -> None:
        """Remember a warning."""
        self.warnings.append(text)


class Attempts:
    """Takes the steps of a run one by one, and goes on after those that fail.

    Parameters
    ----------
    told : Told
        What the steps report to.
    output : bool
        Whether it is known where the products would go.
    """

    def __init__(self, told: Told, output: bool) -> None:
        self.told, self.output = told, output
        self.remarks: list[Remark] = []

    def __call__(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Take a step; returns its result, None if it failed or was not taken."""
        if name in ON_OUTPUT and not self.output:
            return self._note(name, UNTRIED, "give --output to have it looked at")
        if any(arg is FAILED for arg in args):
            return self._note(name, UNTRIED, "it needs what has failed")
        self.told.messages.clear()
        self.told.warnings.clear()
        try:
            result = function(*args)
        except InputError as error:
            return self._note(name, FAILS, str(error))
        said = [*self.told.warnings, *self.told.messages]
        self._note(name, WARNING if self.told.warnings else OK, "; ".join(said) or (result if isinstance(result, str) else ""))
        return result

    def _note(self, name: str, verdict: str, detail: str) -> Any:
        self.remarks.append(Remark(name, verdict, detail))
        return FAILED


FAILED = object()
"""The result of a step that has none."""


def run(sets: tuple[str, ...], config: Check, report: Reporter) -> Findings:
    """Try all that could fail.

    Every step of `pfb clean` before its first data are read is taken as it would be, but nothing is written. Of the data a
    bounded number of rows is looked at.

    Parameters
    ----------
    sets : tuple of str
        Measurement sets that would be imaged together.
    config : Check
        Options of `pfb clean`.
    report : Reporter
        Is told how many bands have been looked at.
    """
    options = Clean(**{f.name: getattr(config, f.name) for f in fields(Clean)})
    told = Told()
    attempt = Attempts(told, bool(config.output))
    attempt("checkpoint", Safety, sets, options, told)
    ready = preflight(sets, options, told, maker="clean", prepare=partial(clean.prepare, options, told), attempt=attempt)
    size = attempt("workers", look_at, options)
    attempt("memory", _memory, ready.planned, options, size)
    attempt("samples", _samples, ready.planned, options, told, report)
    if config.model_column:
        attempt(f"column {config.model_column}", _column, ready.planned, config)
    remarks = list(attempt.remarks)
    for path in sets:
        remarks += _of_set(path, ready.planned, named=len(sets) > 1)
    return Findings(sets, tuple(remarks))


def _of_set(path: str, planned: Any, named: bool) -> list[Remark]:
    """Look at a set whether or not it can be imaged; of what cannot even be opened the steps have spoken."""
    try:
        d = describe(os.path.normpath(path))
    except InputError:
        return []
    found = check_metadata(d)
    if planned is not FAILED:
        windows = [w for w in planned[0].windows if w.path == os.path.abspath(path)]
        if windows:
            found += [check_baselines(d, windows), *check_columns(windows)]
    return [r._replace(check=f"{r.check} of {Path(path).name}" if named else r.check) for r in found]


def _column(planned: tuple[SelectedData, Plan], config: Check) -> None:
    """Refuse a column that could not be written into every set."""
    windows = planned[0].windows
    for path in dict.fromkeys(w.path for w in windows):
        own = [w for w in windows if w.path == path]
        model_column.check(describe(path), own, str(config.model_column), "", config.overwrite)


def _memory(planned: tuple[SelectedData, Plan], config: Clean, size: Size) -> str:
    return announce(settle(planned[1], config, size), config, size)


def _samples(planned: tuple[SelectedData, Plan], config: Clean, told: Told, report: Reporter) -> None:
    """Refuse what has no usable sample, and warn of planes that have none."""
    data, plan = planned
    with report.stage("look", len(plan.bands)) as advance:
        looked = look(plan, config, advance)
    total, good = sum(own.samples for own in looked), sum(own.good for own in looked)
    about = "" if all(own.whole for own in looked) else " that were looked at"
    if all(own.whole for own in looked):
        require_data(data, plan, config, [own.wsum for own in looked])
    for plane, own in zip(plan.planes, looked, strict=True):
        if own.wsum == 0:
            band = plan.bands[plane.band]
            told.warning(f"{plan.name(plane)} ({band.freq_min / 1e6:.6g} - {band.freq_max / 1e6:.6g} MHz) has none of use")
    told.message(f"{good} of {total}{about} can be used; by band {_by_band(looked)}")


def _by_band(looked: Sequence[Looked]) -> str:
    """Write the usable percentage of every band, product after product."""
    return ", ".join(f"{100 * own.good / max(own.samples, 1):.3g}%" for own in looked)
