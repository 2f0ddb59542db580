"""``--profile``: what it writes, when, and what it does not cost."""

from __future__ import annotations

import csv
import os
import threading
from collections import Counter
from contextlib import contextmanager

import matplotlib.image
import pytest
from dask.callbacks import Callback
from dask.utils import key_split

from pfb.config import Clean, Image
from pfb.errors import PfbError
from pfb.graph import grain as grain_module
from pfb.graph.cluster import ClusterEngine
from pfb.graph.engine import ThreadEngine
from pfb.graph.grain import Grain
from pfb.graph.names import STAGES
from pfb.graph.phases import Phase
from pfb.pipeline import clean, image, profile
from pfb.pipeline.profile_files import ordered, shares, total, write_phases
from tests.observations import small_set

FILES = {"report.html", "memory.csv", "memory.png", "phases.csv", "phases.md"}
SMALL = dict(npix="64", cell=2.0, nband=3, bases="self,db2", niter=2, tol=0.0, pd_maxit=12, threads_per_worker=1, checkpoint=0)


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    return small_set(tmp_path_factory.mktemp("field") / "a.ms").path


@pytest.fixture(autouse=True)
def _every_step_is_a_task(monkeypatch):
    """Of images as small as these many iterations would be one."""
    monkeypatch.setattr(grain_module, "grain_of", lambda *_: Grain.STEP)


@pytest.fixture
def stages(recorder):
    """The names of the stages that the reporter was told."""
    names = []
    inner = recorder.stage

    @contextmanager
    def stage(name, total):
        names.append(name)
        with inner(name, total) as advance:
            yield advance

    recorder.stage = stage
    return names


@pytest.fixture
def submitted(monkeypatch):
    """Count the tasks of every cycle and stage that engines are given."""
    counts = Counter()

    def note(engine, graph):
        # To threads a value is no task, to a scheduler it is one.
        tasks = [key for key, node in graph.items() if isinstance(engine, ClusterEngine) or hasattr(node, "func")]
        counts.update((engine.monitor.cycle, key_split(key)) for key in tasks)

    threads, submit = ThreadEngine._run, ClusterEngine.submit
    monkeypatch.setattr(ThreadEngine, "_run", lambda self, graph, *rest: (note(self, graph), threads(self, graph, *rest))[1])
    monkeypatch.setattr(ClusterEngine, "submit", lambda self, graph, *rest: (note(self, graph), submit(self, graph, *rest))[1])
    return counts


def run(field, folder, report, **settings):
    clean.run((field,), Clean(output=str(folder / "out"), profile=True, **(SMALL | settings)), report)
    return folder / "out-profile"


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def assert_nothing_records():
    assert not Callback.active, "later runs would be recorded too"
    assert not [thread for thread in threading.enumerate() if thread.name == "pfb-sampler"]


def check(folder, stages, submitted):
    """Files are there, tasks are those submitted, times and bytes make sense."""
    assert set(os.listdir(folder)) == FILES
    rows = table(folder / "phases.csv")
    found = {(int(row["cycle"]) if row["cycle"] else None, row["stage"]): int(row["tasks"]) for row in rows}
    assert found == dict(submitted)
    assert {stage for _, stage in found} <= set(STAGES)
    assert {cycle for cycle, _ in found} == {None, 0, 1}
    assert {cycle for cycle, stage in found if stage in ("read", "grid", "cg", "write")} == {None}
    assert [found[cycle, "extrapolate"] for cycle in (0, 1)] == [12 * 3] * 2
    assert sum(float(row["compute_s"]) for row in rows) > 0
    trace = table(folder / "memory.csv")
    assert len(trace) >= 2  # one at the start, one at the end
    seconds = [float(row["seconds"]) for row in trace]
    assert seconds == sorted(seconds)
    assert all(50e6 < int(row["bytes"]) < 20e9 for row in trace)
    assert {row["stage"] for row in trace} <= {"", *stages}
    assert "primal-dual" in stages
    picture = matplotlib.image.imread(folder / "memory.png")
    assert picture.shape == (400, 900, 4)
    text = (folder / "phases.md").read_text()
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["All", "Outside of cycles", "Cycle 0", "Cycle 1"]
    assert f"| sum | {sum(found.values())} |" in text
    return rows


def test_a_run_on_threads(field, tmp_path, recorder, stages, submitted, dataset_only):
    folder = run(field, tmp_path, recorder)
    rows = check(folder, stages, submitted)
    assert {row["cpu_s"] for row in rows} == {""}
    text = (folder / "report.html").read_text()
    for words in ("bokeh", "psi-hdot", "CPUs that work"):
        assert words in text
    titles = [title for title, _ in recorder.summaries]
    assert titles == [f"profile in {folder}", "pfb clean"]
    assert not recorder.warnings
    assert_nothing_records()


@pytest.mark.cluster
def test_a_run_on_workers_that_it_starts(field, tmp_path, recorder, stages, submitted, dataset_only):
    folder = run(field, tmp_path, recorder, workers=2)
    rows = check(folder, stages, submitted)
    assert sum(float(row["cpu_s"]) for row in rows) > 0
    assert sum(int(row["transfer_bytes"]) for row in rows if row["stage"] == "l21-norm") > 0
    text = (folder / "report.html").read_text()
    assert "Dask Performance Report" in text
    assert "psi-hdot" in text
    assert not recorder.warnings


@pytest.mark.cluster
def test_a_run_on_a_cluster_that_it_joins(field, tmp_path, recorder, stages, submitted, dataset_only, cluster):
    plugins = set(cluster.scheduler.plugins)
    folder = run(field, tmp_path, recorder, scheduler=cluster.scheduler_address, threads_per_worker=None)
    check(folder, stages, submitted)
    assert set(cluster.scheduler.plugins) - plugins <= {"pfb-page", "pfb-unbinding", "task-stream"}
    history = list(cluster.scheduler.plugins["pfb-page"].runs.values())[-1]
    assert [row["cycle"] for row in history.cycles] == [0, 1]
    assert [row["iterations"] for row in history.iterations] == [10, 12] * 2
    assert [f"{row['rms']:.4e}" for row in history.cycles] == [row["rms [Jy/beam]"] for row in recorder.rows]
    assert history.residual.levels.shape == (64, 64)
    assert history.residual_cycle == 1


def test_without_the_option_nothing_is_recorded(field, tmp_path, recorder, dataset_only, monkeypatch):
    def refuse(*_):
        raise AssertionError("something was recorded")

    monkeypatch.setattr(profile, "ThreadRecorder", refuse)
    image.run((field,), Image(output=str(tmp_path / "out"), npix="32", nband=1, threads_per_worker=1), recorder)
    assert os.listdir(tmp_path) == ["out.zarr"]


def test_dirty_images_have_a_profile_too(pfb, field, tmp_path, dataset_only):
    answer = pfb("image", field, "-o", tmp_path / "out", "--npix", 32, "--nband", 2, "--profile")
    assert answer.code == 0, answer.err
    assert set(os.listdir(tmp_path / "out-profile")) == FILES
    assert f"profile in {tmp_path}/out-profile" in answer.out
    lines = [line for line in answer.out.splitlines() if " tasks " in line]
    assert any(line.split()[:3] == ["grid", "2", "tasks"] for line in lines)
    assert {row["cycle"] for row in table(tmp_path / "out-profile" / "phases.csv")} == {""}


def test_one_that_exists_is_not_replaced_unasked(pfb, refused, field, tmp_path, dataset_only):
    folder = tmp_path / "out-profile"
    folder.mkdir()
    (folder / "old").write_text("old")
    words = ("image", field, "-o", tmp_path / "out", "--npix", 32, "--nband", 1)
    said = refused(*words, "--profile", folder=tmp_path)
    assert said == f"{folder} exists already; choose another name, or replace it with --overwrite"
    assert pfb(*words).code == 0
    assert os.listdir(folder) == ["old"]
    assert pfb(*words, "--profile", "--overwrite").code == 0
    assert set(os.listdir(folder)) == FILES


def broken(*_):
    raise PfbError("the run breaks here")


@pytest.mark.parametrize("engine", ["threads", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_a_run_that_fails_leaves_its_profile(field, tmp_path, recorder, monkeypatch, engine, request):
    settings = {}
    if engine == "cluster":
        settings = dict(scheduler=request.getfixturevalue("cluster").scheduler_address, threads_per_worker=None)
    monkeypatch.setattr(clean, "store", broken)
    with pytest.raises(PfbError, match="the run breaks here"):
        run(field, tmp_path, recorder, **settings)
    assert os.listdir(tmp_path) == ["out-profile"]
    assert set(os.listdir(tmp_path / "out-profile")) == FILES
    found = {row["stage"] for row in table(tmp_path / "out-profile" / "phases.csv")}
    assert "cg" not in found
    assert {"primal", "subtract"} <= found


@pytest.mark.cluster
@pytest.mark.parametrize("when", ["__enter__", "__exit__"])
def test_what_the_scheduler_does_not_give_is_named(field, tmp_path, recorder, monkeypatch, dataset_only, cluster, when):
    """The other files are there, and so are the products."""

    def refuse(*_):
        raise OSError("the scheduler\nis gone")

    monkeypatch.setattr(profile.performance_report, when, refuse)
    monkeypatch.setattr(profile.ClusterPhases, "collect", refuse)
    folder = run(field, tmp_path, recorder, scheduler=cluster.scheduler_address, threads_per_worker=None, niter=1)
    assert set(os.listdir(folder)) == FILES - {"report.html"}
    assert recorder.warnings == [
        f"the profile has no {name} (OSError: the scheduler is gone); its other files are in {folder}"
        for name in (("times of the stages", "report.html") if when == "__exit__" else ("report.html", "times of the stages"))
    ]
    assert (tmp_path / "out.zarr").is_dir()
    assert len(table(folder / "memory.csv")) > 1
    assert table(folder / "phases.csv") == []


def test_a_profile_that_cannot_be_written_costs_no_image(field, tmp_path, recorder, monkeypatch, dataset_only):
    @contextmanager
    def refuse(*_):
        raise OSError(28, "no space left")
        yield

    monkeypatch.setattr(profile, "staged", refuse)
    run(field, tmp_path, recorder)
    assert os.listdir(tmp_path) == ["out.zarr"]
    (said,) = recorder.warnings
    assert said.startswith(f"the profile could not be written to {tmp_path}/out-profile (OSError: [Errno 28] no space left)")
    assert_nothing_records()


# The tables


def phases():
    return [
        Phase(1, "primal", 2, 1.0, 0.5, 0.0, 0, 0.1),
        Phase(None, "read", 3, 4.0, 3.0, 0.25, 2**21, 0.2),
        Phase(0, "primal", 5, 2.0, 1.5, 0.0, 0, 0.3),
        Phase(0, "psi-dot", 1, 0.5, 0.25, 1.0, 2**20, 0.0),
    ]


def test_rows_follow_cycles_and_stages():
    assert [(p.cycle, p.stage) for p in ordered(phases())] == [(None, "read"), (0, "psi-dot"), (0, "primal"), (1, "primal")]


def test_sums_over_cycles():
    sums = {p.stage: p for p in total(phases())}
    assert sums["primal"] == Phase(None, "primal", 7, 3.0, 2.0, 0.0, 0, pytest.approx(0.4))
    assert list(sums) == ["read", "psi-dot", "primal"]
    unknown = [p._replace(cpu=None) if p.cycle == 1 else p for p in phases()]
    assert {p.stage: p.cpu for p in total(unknown)} == {"read": 3.0, "psi-dot": 0.25, "primal": None}


def test_the_table_at_the_end_has_what_took_most_first():
    lines = shares(phases())
    assert list(lines) == ["read", "primal", "psi-dot"]
    assert lines["read"].split() == "3 tasks 4.00 s 53.3 % 0.25 s for 2.0 MiB from other workers".split()
    assert lines["primal"].split() == "7 tasks 3.00 s 40.0 %".split()


def test_the_tables_on_disk(tmp_path):
    write_phases(tmp_path, ordered(phases()))
    rows = table(tmp_path / "phases.csv")
    assert rows[1] == {
        "cycle": "0", "stage": "psi-dot", "tasks": "1", "compute_s": "0.500000", "cpu_s": "0.250000",
        "transfer_s": "1.000000", "transfer_bytes": "1048576", "other_s": "0.000000",
    }  # fmt: skip
    text = (tmp_path / "phases.md").read_text()
    assert "| primal | 7 | 3.00 | 2.00 | 0.00 | 0.0 | 0.40 |" in text
    assert "| sum | 11 | 7.50 | 5.25 | 1.25 | 3.0 | 0.60 |" in text
