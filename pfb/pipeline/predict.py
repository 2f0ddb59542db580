"""`pfb predict`: the visibilities of a model into a column of measurement sets, or the data less or plus them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from distributed.system import memory_limit

from pfb.config import Predict
from pfb.errors import InputError
from pfb.graph import prediction
from pfb.graph.engine import Engine
from pfb.graph.names import Names, token
from pfb.graph.tasks import Graph, Key
from pfb.io.casa_tables import unfinished
from pfb.io.description import Field
from pfb.io.feed_angles import require_feed_angles
from pfb.io.model_column import Piece, check, complete, exclusive, pieces, prepare, write
from pfb.io.selection import SelectedSet, Selection, select_fields
from pfb.pipeline.budget import GRIDDING, PROCESS
from pfb.pipeline.models import Components, Cut, Images, Spectrum, open_any
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.session import open_engine

PIECE = 48 << 20
"""Bytes of the visibilities that a task predicts, in single precision: few enough that several fit, many enough that the
Fourier transform of the image, which every task makes, is not most of its work."""

WORK = 5
"""Memory of a task over these: double precision, Stokes parameters beside correlations, and what is read."""

QUEUE = 2
"""Pieces a thread that are predicted before those before them must have been written."""


def run(sets: tuple[str, ...], config: Predict, report: Reporter) -> None:
    """Write ``MODEL_DATA`` or another column of every set.

    The sets are written one after the other, each by one writer. Everything that can be is checked before, the write
    itself by writing one row back.

    Parameters
    ----------
    sets : tuple of str
        Measurement sets.
    config : Predict
        Options of the command.
    report : Reporter
        Is told the progress.

    Raises
    ------
    InputError
        If the model cannot be used, the column cannot be written, or the options contradict each other.
    """
    began = monotonic()
    column = _column(config)
    model = open_any(config.model, Spectrum(config.spectrum, config.terms), _cut(config))
    chosen = Selection(field=config.field, spw=config.spw, scan=config.scan, chan=config.chan)
    selected, notes = select_fields(sets, chosen)
    for note in notes:
        report.message(note)
    targets = [(one, _source(one, config, column)) for one in selected]
    paths = [one.description.path for one in selected]
    with exclusive(paths):
        for one, source in targets:
            _check(one, column, source, config, report)
        parking = Path(paths[0]).absolute().parent
        nblock = max(config.workers, 1)
        with open_engine(config, nblock, parking, report) as engine:
            _require_memory(model, engine)
            for number, (one, source) in enumerate(targets):
                prepare(one.description, [w for _, w in one.windows], column, source)
                _predict(one, source, column, model, config, engine, report, number)
                complete(one.description.path, column)
                report.message(f"{one.description.path}: {_done(config, source)} {column}")
    report.summary("pfb predict", {"column": column, "sets": ", ".join(paths), "seconds": f"{monotonic() - began:.1f}"})


def _column(config: Predict) -> str:
    if config.subtract and config.add:
        raise InputError("--subtract and --add exclude each other; give one of them")
    if (config.subtract or config.add) and config.column is None:
        word = "subtract" if config.subtract else "add"
        raise InputError(f"--{word} needs --column, the name of the column to write: for instance --column CORRECTED_DATA")
    if config.data_column is not None and not (config.subtract or config.add):
        raise InputError(f"--data-column {config.data_column} is used with --subtract or --add only; give one of them")
    if config.outside and config.region is None:
        raise InputError("--outside needs --region, the DS9 regions that it refers to")
    column = config.column or "MODEL_DATA"
    if config.data_column == column:
        raise InputError(
            f"--column {column} is also the --data-column, which a run that dies would leave half changed; write another column"
        )
    if "WEIGHT" in column or "SIGMA" in column or "FLAG" in column:
        raise InputError(f"--column {column} is a column of weights or flags, which are never written; choose another")
    return column


def _cut(config: Predict) -> Cut:
    return Cut(config.region, config.outside)


def _source(one: SelectedSet, config: Predict, column: str) -> str:
    """Return the column that the model is subtracted from or added to, nothing if it is written itself."""
    if not (config.subtract or config.add):
        return ""
    if config.data_column is not None:
        return config.data_column
    usable = "CORRECTED_DATA" in one.description.visibility_columns and column != "CORRECTED_DATA"
    source = "CORRECTED_DATA" if usable else "DATA"
    if source == column:
        raise InputError(f"--column {column} is the column of the data; write another column")
    return source


def _check(one: SelectedSet, column: str, source: str, config: Predict, report: Reporter) -> None:
    check(one.description, [w for _, w in one.windows], column, source, config.overwrite)
    for _, window in one.windows:
        require_feed_angles(window, config.feed_angle)
    path = one.description.path
    for name in {column, source} & {c.name for c in one.description.columns}:
        if unfinished(path, name) and name == column:
            report.message(f"{path}: {column} was left unfinished by an earlier run and is written anew")
        elif unfinished(path, name):
            raise InputError(f"{name} of {path} was left unfinished by an earlier run; write it again before it is used")


def _require_memory(model: Images | Components, engine: Engine) -> None:
    """Refuse images that do not fit a worker beside what its threads need to grid them."""
    nthread = engine.nthread // engine.nworker
    one = GRIDDING * model.largest + WORK * QUEUE * PIECE
    needed = PROCESS + 8 * model.pixels + nthread * one
    limit = engine.memory or memory_limit()
    if needed > limit:
        raise InputError(
            f"predicting takes up to {needed / 2**30:.3g} GiB on {nthread} threads but there are {limit / 2**30:.3g} GiB: "
            "use fewer threads (--threads-per-worker) or a smaller model"
        )


def _predict(
    one: SelectedSet, source: str, column: str, model: Images | Components, config: Predict, engine: Engine, report: Reporter,
    number: int,
) -> None:  # fmt: skip
    """Predict one set, some pieces at a time."""
    path = one.description.path
    names = Names(token(path, number, *(f"{k}={v}" for k, v in sorted(asdict(config).items()))))
    frame = one.windows[0][0].frame
    options = dict(epsilon=config.epsilon, wgridding=config.wgridding)
    graph: Graph = {}
    models = prediction.load_models(graph, names, model.loaders(frame))
    with engine.monitor.stage("model"), report.stage("model", len(models)) as advance:
        engine.run(graph, models, advance)
    predictor = model.predictor(frame, options, config.feed_angle)
    sign = -1.0 if config.subtract else 1.0
    parts = [(field, piece) for field, w in one.windows for piece in pieces(w, column, source, sign, PIECE)]
    with engine.monitor.stage("predict"), report.stage("predict", len(parts)) as advance:
        for first, some in enumerate(_batches(parts, QUEUE * engine.nthread)):
            _run_batch(names.within(first), some, predictor, models, engine)
            advance(len(some))
    engine.drop(models)


def _run_batch(names: Names, parts: Sequence[tuple[Field, Piece]], predictor: Any, models: list[Key], engine: Engine) -> None:
    graph: Graph = {}
    predictors = [partial(predictor, piece, field) for field, piece in parts]
    written = prediction.predict(graph, names, models, predictors, [partial(write, piece) for _, piece in parts])
    engine.run(graph, written[-1:])
    engine.drop(written)


def _batches(parts: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(parts), size):
        yield parts[first : first + size]


def _done(config: Predict, source: str) -> str:
    if not source:
        return "the model is in"
    return f"{source} {'less' if config.subtract else 'plus'} the model is in"
