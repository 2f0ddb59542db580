"""What must not change the result of `pfb clean`: docs/invariance.md, run by run."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from contextlib import contextmanager

import dask
import dask.local
import numpy as np
import pytest
from astropy.io import fits
from distributed import LocalCluster

from pfb.graph import blocks as blocks_module
from pfb.graph import cluster as cluster_module
from pfb.graph import deconvolution as builders
from pfb.graph import grain as grain_module
from pfb.graph.blocks import Blocks
from pfb.graph.cluster import CONFIG
from pfb.graph.engine import ThreadEngine
from pfb.graph.grain import Grain
from pfb.graph.names import stage_of
from pfb.io import window
from pfb.io.dataset import HISTORY
from pfb.io.measurement_set import release
from pfb.pipeline import planning
from tests.observations import change, small_set
from tests.pipeline.conftest import Recorder
from tests.pipeline.small_runs import NEAR, same, sky

NSPW, EMPTY = 5, 1
RICH = dict(nband=NSPW, bases="self,db1,db2", niter=3, pd_maxit=13, positivity="joint", l1_reweight_from=1)
BRIEF = dict(RICH, bases="self,db1", niter=2, pd_maxit=5)
PLAIN = dict(RICH, positivity="none", prior="l21")
IMAGES = ("dirty", "psf", "model", "residual", "update", "dual")
RESULTS = (*IMAGES, "wsum", "freq", "beam", *(f"history_{name}" for name in HISTORY if name != "seconds"))

LINEAR = 1e-12
"""Of the peak: sums of thousands of samples in double precision that are taken in another order."""
DECONVOLVED = 1e-6
"""Of the peak: products with Hessian and preconditioner are rounded to single precision, so last bits come back as 1e-7."""

precisions = pytest.mark.parametrize("precision", ["single", "double"])


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """A set of five windows, which are five bands; one of them has no data, and NaN under its flags."""
    return write(tmp_path_factory.mktemp("five") / "a.ms", flagged_windows=(EMPTY,), nan_in_flagged=True)


def write(path, **parameters):
    return small_set(path, sky=sky(NEAR), nspw=NSPW, nchan=2, nant=12, sefd=2_000.0, scan_length=1.0, **parameters).path


@pytest.fixture
def mask(tmp_path):
    """A mask that leaves out a source."""
    kept = np.ones((30, 27), "f4")
    kept[:, 3:9] = 0
    fits.PrimaryHDU(kept.T).writeto(tmp_path / "mask.fits")
    return str(tmp_path / "mask.fits")


def differs(one, other, results=RESULTS):
    """Names of the results that have other bits."""
    return same(one, other, results)


def distance(one, other, name):
    """Largest difference over the peak."""
    a, b = one[name].values, other[name].values
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    return float(np.nanmax(np.abs(a - b)) / np.nanmax(np.abs(a)))


@contextmanager
def grained(grain):
    """A task is that much, whatever takes the least time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grain_module, "grain_of", lambda *_: grain)
        yield


@pytest.fixture(autouse=True)
def _every_step():
    """Small as the images are, every step of an iteration is a task, as for large ones."""
    with grained(Grain.STEP):
        yield


# Threads, and the order of tasks


@precisions
@pytest.mark.parametrize("options", [RICH, PLAIN], ids=["constrained", "free"])
def test_threads(run, five, mask, options, precision):
    """With three threads the dual has a block for every band, with one all bands are in one."""
    options = options | dict(precision=precision, mask=mask if options is RICH else None)
    one, *others = (run(five, **options, threads_per_worker=n) for n in (1, 2, 3, 4))
    assert [differs(one, other) for other in others] == [[]] * 3
    assert np.isnan(one.residual.values[EMPTY]).all()


@pytest.mark.parametrize("seed", range(3))
def test_order_of_tasks(run, five, mask, monkeypatch, seed):
    """In the graph, and of what is done next among the tasks that are ready."""
    expected = run(five, **RICH, mask=mask)
    rng, honest, count = np.random.default_rng(seed), ThreadEngine._run, 0

    def shuffled(self, graph, *args):
        nonlocal count
        count += 1
        keys = list(graph)
        honest(self, {keys[i]: graph[keys[i]] for i in rng.permutation(len(keys))}, *args)

    monkeypatch.setattr(ThreadEngine, "_run", shuffled)
    monkeypatch.setattr(dask.local, "order", lambda dsk, **_: dict(zip(dsk, rng.permutation(len(dsk)).tolist(), strict=True)))
    assert differs(expected, run(five, **RICH, mask=mask, threads_per_worker=2 + seed)) == []
    assert count > 20


def test_joined_tasks(run, five, mask):
    expected = run(five, **RICH, mask=mask)
    with grained(Grain.BLOCK):
        assert differs(expected, run(five, **RICH, mask=mask, threads_per_worker=3)) == []


def test_more_threads_than_bands(run, five):
    """The gridder then has several, and adds up in the order in which they come."""
    options = dict(RICH, nband=1, precision="double")
    one, two = (run(five, **options, threads_per_worker=n) for n in (1, 2))
    assert max(distance(one, two, name) for name in ("dirty", "psf")) <= LINEAR
    assert max(distance(one, two, name) for name in ("model", "residual")) <= DECONVOLVED


# Workers, and where bands are


@pytest.fixture(scope="module")
def workers():
    """A function that gives the cluster so many workers of one thread."""
    with (
        dask.config.set(CONFIG),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0) as cluster,
    ):

        def have(n):
            cluster.scale(n)
            cluster.wait_for_workers(n)
            while len(cluster.scheduler.workers) > n:
                time.sleep(0.05)
            return cluster

        yield have


class Watching(Recorder):
    """Notes after each cycle which workers have the Hessians of the bands, and which their samples."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster, self.hessians, self.samples = cluster, [], []

    def row(self, values):
        self.hessians.append(self.homes("hessian"))
        self.samples.append(self.homes("weigh"))

    def homes(self, stage):
        """Workers of each result of a stage, in the order of their numbers."""
        found = defaultdict(list)
        for worker in self.cluster.scheduler.workers.values():
            for task in worker.has_what:
                if isinstance(task.key, tuple) and stage_of(task.key) == stage:
                    found[task.key[-1]].append(worker.name)
        return [found[v] for v in sorted(found)]


def on(cluster):
    return dict(scheduler=cluster.scheduler_address, threads_per_worker=None)


@pytest.mark.cluster
def test_workers(run, five, mask, workers):
    """One to four, for four bands with data."""
    expected = {precision: run(five, **BRIEF, mask=mask, precision=precision) for precision in ("single", "double")}
    step, worker = Grain.STEP, Grain.WORKER
    for n, precision, grain in ((1, "single", step), (2, "double", worker), (3, "single", step), (4, "double", worker)):
        report = Watching(workers(n))
        with grained(grain):
            found = run(five, **BRIEF, mask=mask, precision=precision, **on(report.cluster), report=report)
        assert differs(expected[precision], found) == [], (n, precision)
        assert [{name for (name,) in homes} for homes in report.hessians] == [set(range(n))] * 2


@contextmanager
def owned(owners):
    """Bands have these workers, whatever would be even."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_module, "spread", lambda nblock, nworker: tuple(owners))
        yield


(FIRST, SECOND) = map(tuple, np.random.default_rng(3).integers(4, size=(2, NSPW)).tolist())


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("owners", "grain"),
    [((2, 2, 2, 2, 2), Grain.STEP), ((0, 1, 0, 1, 0), Grain.WORKER), ((3, 0, 0, 3, 1), Grain.STEP),
     (FIRST, Grain.WORKER), (SECOND, Grain.BLOCK)],
    ids=str,
)  # fmt: skip
def test_placement(run, five, workers, owners, grain):
    """All bands on one worker of four, neighbours on different ones, and any other."""
    with owned(owners), grained(grain):
        found = run(five, **BRIEF, **on(workers(4)))
    assert differs(run(five, **BRIEF), found) == []


@pytest.mark.cluster
@pytest.mark.parametrize("empty", [0, 2, 4])
def test_place_of_an_empty_band(run, tmp_path, workers, empty):
    """The others have the bits of threads, and everything of a band stays where its samples are."""
    path, owners = write(tmp_path / "a.ms", flagged_windows=(empty,), nan_in_flagged=True), (1, 0, 2, 3, 0)
    expected, report = run(path, **BRIEF), Watching(workers(4))
    assert np.isnan(expected.dirty.values).all(axis=(1, 2)).tolist() == [v == empty for v in range(NSPW)]
    with owned(owners):
        assert differs(expected, run(path, **BRIEF, **on(report.cluster), report=report)) == []
    assert report.samples == report.hessians == [[[home] for v, home in enumerate(owners) if v != empty]] * 2


# How arrays are cut


def test_chunks_of_rows(run, five, monkeypatch):
    expected, counts = run(five, **RICH), []
    made = planning.pieces

    def counted(w):
        found = made(w)
        counts.append(len(found))
        return found

    monkeypatch.setattr(planning, "pieces", counted)
    # 2 channels of 4 correlations: 13 bytes each; 264 rows of a window.
    for rows, number in ((1000, 1), (100, 3), (20, 14)):
        monkeypatch.setattr(window, "_CHUNK_BYTES", rows * 13 * 8)
        monkeypatch.setattr(window, "_tile_rows", lambda *_: 1)
        counts.clear()
        assert differs(expected, run(five, **RICH)) == []
        assert counts == [number] * NSPW


@contextmanager
def cut(**chunks):
    """All duals are cut this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "Blocks", lambda *args, **given: Blocks(*args, **(given | chunks)))
        yield


@precisions
def test_tiles_and_blocks_of_bands(run, five, precision):
    options = dict(RICH, precision=precision)
    expected = run(five, **options)
    for chunks in (dict(tile=1000), dict(tile=333), dict(tile=100), dict(band_chunk=2, tile=500), dict(band_chunk=4)):
        with cut(**(dict(band_chunk=1) | chunks)):
            assert differs(expected, run(five, **options, threads_per_worker=3)) == [], chunks


def test_blocks_of_bases(run, five):
    """Of four: in pairs they are added as they are one by one; all together only differ in their last bits."""
    options = dict(RICH, bases="self,db1,db2,db3")
    expected = run(five, **options)
    with cut(basis_chunk=2):
        assert differs(expected, run(five, **options), RESULTS) == []
    with cut(basis_chunk=4):
        found = run(five, **options)
    assert "model" in differs(expected, found)
    assert max(distance(expected, found, name) for name in ("model", "residual")) <= 10 * DECONVOLVED


# How data are stored


def copied(path, to):
    release()
    shutil.copytree(path, to)
    return str(to)


def permute(table, columns, order):
    """Write the rows of a table in another order."""
    for column in columns:
        change(table, column, lambda values: values[order])


def renumber(table, column, order):
    """Point at the rows of another table that was permuted."""
    change(table, column, lambda numbers: np.argsort(order)[numbers].astype(numbers.dtype))


CHANNELS = ("CHAN_FREQ", "CHAN_WIDTH")
SAMPLES = (
    "TIME", "ANTENNA1", "ANTENNA2", "DATA_DESC_ID", "UVW", "DATA", "CORRECTED_DATA", "WEIGHT", "WEIGHT_SPECTRUM",
    "FLAG", "FLAG_ROW",
)  # fmt: skip


@pytest.mark.parametrize("nband", [3, 5])
def test_order_of_windows(run, five, tmp_path, nband):
    """Two windows of a band, or one: stored as they come, and with other numbers in another order."""
    options = dict(RICH, nband=nband)
    expected = run(five, **options)
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(NSPW)
        assert (np.diff(order) < 0).any()
        path = copied(five, tmp_path / f"{seed}.ms")
        permute(f"{path}/SPECTRAL_WINDOW", CHANNELS, order)
        renumber(f"{path}/DATA_DESCRIPTION", "SPECTRAL_WINDOW_ID", order)
        assert differs(expected, run(path, **options)) == []
        permute(f"{path}/DATA_DESCRIPTION", ("SPECTRAL_WINDOW_ID",), order)
        renumber(path, "DATA_DESC_ID", order)
        assert differs(expected, run(path, **options)) == []


def test_order_of_sets(run, tmp_path):
    """Three hours of the same sky, given in any order."""
    sets = [write(tmp_path / f"{h}.ms", start=f"2024-06-10T0{h}:00:00", seed=h) for h in range(3)]
    first, *others = (run(*(sets[i] for i in order), **RICH) for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2)))
    assert [differs(first, other) for other in others] == [[], []]
    assert "dirty" in differs(first, run(*sets[:2], **RICH))


@pytest.mark.parametrize(("precision", "bound"), [("double", DECONVOLVED), ("single", 10 * DECONVOLVED)])
def test_order_of_rows(run, five, tmp_path, precision, bound):
    """Sums over rows are then others: images are to the last bits the same, models to single precision."""
    options = dict(RICH, precision=precision)
    path = copied(five, tmp_path / "a.ms")
    permute(path, SAMPLES, np.random.default_rng(0).permutation(1320))
    expected, found = run(five, **options), run(path, **options)
    assert {"dirty", "psf"} <= set(differs(expected, found))
    assert max(distance(expected, found, name) for name in ("dirty", "psf", "wsum", "freq")) <= LINEAR
    assert max(distance(expected, found, name) for name in ("model", "residual")) <= bound


# What has no weight


def test_nothing_under_a_zero_weight_is_seen(run, tmp_path, monkeypatch):
    """Neither by the points of the first model nor by anything else; also not in a band that is empty."""
    pixels, points = [], []

    def noted(function, notes):
        def calling(*args, **options):
            notes.append(function(*args, **options))
            return notes[-1]

        return calling

    monkeypatch.setattr(builders, "find_points", noted(builders.find_points, pixels))
    monkeypatch.setattr(builders, "point_model", noted(builders.point_model, points))
    path = write(tmp_path / "a.ms", flagged_windows=(EMPTY,))
    change(path, "WEIGHT_SPECTRUM", unweighted)
    expected = run(path, **RICH)
    change(path, "CORRECTED_DATA", spoilt)
    found = run(path, **RICH)
    assert differs(expected, found) == []
    (one, other), models = pixels, np.array(points)
    assert len(one) > 10
    np.testing.assert_array_equal(one, other)
    # A model of every band that has data, with the brightest source in all of them where it is.
    assert models.shape == (2 * (NSPW - 1), 30, 27)
    assert np.isfinite(models).all()
    assert set(map(tuple, one)) == set(zip(*np.nonzero(models.any(axis=0)), strict=True))
    at = np.array([np.unravel_index(model.argmax(), model.shape) for model in models])
    assert np.abs(at - (15 + NEAR[0][0], 13 + NEAR[0][1])).max() <= 1
    before, after = (sorted(model.tobytes() for model in half) for half in (models[: NSPW - 1], models[NSPW - 1 :]))
    assert before == after
    assert np.isfinite(found.model.values).all()


def unweighted(weight):
    return np.where(np.arange(len(weight))[:, None, None] % 7, weight, 0)


def spoilt(vis):
    """NaN and infinite in the rows that have no weight."""
    row = np.arange(len(vis))[:, None, None]
    return np.where(row % 7, vis, np.where(row % 2, np.nan, np.inf)).astype(vis.dtype)
