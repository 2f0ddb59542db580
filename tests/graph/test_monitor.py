"""What watches a run: marks, spans, events, and the page of the solver."""

from __future__ import annotations

import pickle
import urllib.error
import urllib.request

import numpy as np
import pytest
from bokeh.client import pull_session
from bokeh.document import Document
from bokeh.models import ColumnDataSource, GlyphRenderer
from distributed import Client, LocalCluster

from pfb.graph import drawing
from pfb.graph import page as module
from pfb.graph.cluster import ClusterEngine
from pfb.graph.engine import ThreadEngine
from pfb.graph.names import Names, token
from pfb.graph.page import NAME, RUNS_KEPT, TOPIC, SolverPage
from pfb.graph.tasks import add, ref
from pfb.kernels.thumbnail import thumbnail

NAMES = Names(token("monitor"))
CYCLE = {
    "peak": 0.3, "rms": 0.02, "noise": 0.01, "lambda": 0.005, "objective": -1.5, "inner": 25, "change": 0.1, "seconds": 3.0,
}  # fmt: skip


def started(**settings):
    """In this process, but with the addresses of a cluster of processes."""
    settings |= dict(host="127.0.0.1", protocol="tcp")
    return LocalCluster(n_workers=2, threads_per_worker=1, processes=False, memory_limit=0, **settings)


@pytest.fixture(scope="module")
def cluster():
    with started(dashboard_address="127.0.0.1:0") as made:
        yield made


def joined(cluster, tmp_path):
    client = Client(cluster, set_as_default=False)
    return ClusterEngine(client, 2, str(tmp_path))


@pytest.fixture
def engine(cluster, tmp_path):
    made = joined(cluster, tmp_path)
    yield made
    made.close()


def run(engine, stage, seed, n=2):
    """Run some tasks of a stage."""
    graph = {}
    keys = [add(graph, NAMES.within(seed).key(stage, v), np.full, 10, float(v)) for v in range(n)]
    engine.run(graph, keys)
    return keys


# Marks


def test_marks_say_where_the_run_stands():
    engine = ThreadEngine(1)
    monitor = engine.monitor
    with monitor.stage("read"):
        pass
    monitor.begin(0)
    with monitor.stage("primal-dual"):
        assert monitor.cycle == 0
    monitor.begin(None)
    engine.close()
    expected = [(None, ""), (None, "read"), (None, ""), (0, ""), (0, "primal-dual"), (0, ""), (None, "")]
    assert [mark[1:] for mark in monitor.marks] == expected
    times = [mark.time for mark in monitor.marks]
    assert times == sorted(times)


def test_threads_of_this_process_have_no_page():
    engine = ThreadEngine(1)
    graph = {}
    assert engine.monitor.page == ""
    assert engine.monitor.picture(graph, NAMES, ("mfs", 0)) == []
    assert not graph
    engine.close()


# Spans


def spans(cluster, run):
    root = cluster.scheduler.extensions["spans"].spans[run]
    return {span.name: {group.prefix.name for group in span.groups} for span in root.traverse_spans()}


def test_tasks_are_in_spans_of_cycle_and_stage(cluster, engine):
    with engine.monitor.stage("grid"):
        run(engine, "psf", "a")
    engine.monitor.begin(3)
    run(engine, "slope", "b")
    with engine.monitor.stage("primal-dual"):
        run(engine, "psi-dot", "c")
    engine.monitor.begin(None)
    with engine.monitor.stage("write"):
        run(engine, "write", "d")
    assert spans(cluster, engine.monitor.run) == {
        ("pfb",): set(),
        ("pfb", "grid"): {"psf"},
        ("pfb", "cycle 3"): {"slope"},
        ("pfb", "cycle 3", "primal-dual"): {"psi-dot"},
        ("pfb", "write"): {"write"},
    }


def test_spans_do_not_undo_the_placement(cluster, engine):
    """Both are annotations of the same tasks."""
    engine.monitor.begin(0)
    with engine.monitor.stage("residual"):
        keys = run(engine, "residual", "placed")
    workers = sorted(cluster.scheduler.workers, key=lambda address: cluster.scheduler.workers[address].name)
    held = engine.client.who_has([engine._futures[key] for key in keys])
    assert [held[key] for key in keys] == [(address,) for address in workers]
    task = cluster.scheduler.tasks[keys[0]]
    assert task.annotations["span"]["name"] == ("pfb", "cycle 0", "residual")
    assert task.annotations["workers"] == [workers[0]]


def test_a_stage_that_fails_ends(engine):
    with pytest.raises(ZeroDivisionError), engine.monitor.stage("grid"):
        raise ZeroDivisionError
    assert engine.monitor.annotations()["span"]["name"] == ("pfb",)


# Events and the page


def told(cluster):
    return cluster.scheduler.plugins[NAME].runs


def test_events_arrive(cluster, engine):
    monitor = engine.monitor
    monitor.tell("iterations", cycle=0, iterations=10, primal=1e-2, dual=2e-2, done=False)
    monitor.tell("cycle", cycle=0, **CYCLE)
    history = told(cluster)[monitor.run]
    assert history.iterations == [{"cycle": 0, "iterations": 10, "primal": 1e-2, "dual": 2e-2, "done": False}]
    assert history.cycles == [{"cycle": 0, **CYCLE}]
    events = [event for _, event in engine.client.get_events(TOPIC) if event["run"] == monitor.run]
    assert [event["event"] for event in events] == ["run", "iterations", "cycle"]


def test_a_residual_is_made_small_where_it_is(cluster, engine, rng):
    image = rng.standard_normal((700, 600))
    graph, monitor = {}, engine.monitor
    monitor.begin(4)
    mfs = add(graph, NAMES.key("mfs", 0), np.random.default_rng(3).standard_normal, (700, 600))
    pictures = monitor.picture(graph, NAMES, mfs)
    engine.run(graph, pictures)
    monitor.show(engine.fetch(pictures))
    history = told(cluster)[monitor.run]
    expected = thumbnail(np.random.default_rng(3).standard_normal(image.shape))
    assert history.residual.levels.shape == (350, 300)
    np.testing.assert_array_equal(history.residual.levels, expected.levels)
    assert (history.residual.limit, history.residual_cycle) == (expected.limit, 4)


def sources(document):
    return {source.name: source.data for source in document.select({"type": ColumnDataSource}) if source.name}


def fill(engine):
    """Tell of two cycles, the second of which has two blocks of iterations."""
    monitor = engine.monitor
    for cycle, blocks in enumerate([(10,), (10, 17)]):
        monitor.begin(cycle)
        with monitor.stage("primal-dual"):
            run(engine, "psi-dot", (monitor.run, cycle))
        for number in blocks:
            monitor.tell("iterations", cycle=cycle, iterations=number, primal=0.1 / number, dual=0.2 / number, done=False)
        monitor.tell("cycle", cycle=cycle, **CYCLE)
    monitor.show([thumbnail(np.arange(12.0).reshape(4, 3))])


def test_the_page_shows_what_was_told(cluster, engine):
    fill(engine)
    assert engine.monitor.page == cluster.dashboard_link.removesuffix("status") + "pfb"
    session = pull_session(url=engine.monitor.page)
    try:
        shown = sources(session.document)
        assert session.document.title == "pfb"
    finally:
        session.close()
    assert list(shown["cycles"]["cycle"]) == [0, 1]
    for name, value in CYCLE.items():
        if name in shown["cycles"]:
            assert list(shown["cycles"][name]) == [value] * 2
    assert set(shown["cycles"]) == {"cycle", *CYCLE}
    assert list(shown["iterations"]["step"]) == [10, 20, 27]
    np.testing.assert_allclose(shown["iterations"]["primal"], [0.01, 0.01, 0.1 / 17])
    assert list(shown["stages"]["stage"]) == ["psi-dot"]
    np.testing.assert_array_equal(shown["residual"]["image"][0], thumbnail(np.arange(12.0).reshape(4, 3)).levels.T)
    assert (list(shown["residual"]["width"]), list(shown["residual"]["height"])) == ([4], [3])


def test_every_column_is_drawn(cluster, engine):
    document = Document()
    drawing.draw(cluster.scheduler.plugins[NAME], cluster.scheduler, document)
    drawn = {r.glyph.y for r in document.select({"type": GlyphRenderer}) if isinstance(r.glyph.y, str)}
    assert {*CYCLE, "primal", "dual", "stage"} <= drawn
    assert len(document.session_callbacks) == 1


def test_the_page_answers_and_dasks_own_still_do(engine):
    for address in (engine.monitor.page, engine.client.dashboard_link):
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.status == 200
            text = answer.read().decode()
        assert "bokeh" in text.lower()
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(engine.monitor.page + "-nothing", timeout=20)
    error.value.close()
    assert error.value.code == 404


def test_the_page_is_added_once_and_knows_both_runs(cluster, engine, tmp_path):
    applications = list(cluster.scheduler.http_application.applications)
    other = joined(cluster, tmp_path)
    assert cluster.scheduler.http_application.applications == applications
    assert {engine.monitor.run, other.monitor.run} <= set(told(cluster))
    assert engine.monitor.run != other.monitor.run
    other.close()


def test_a_closed_run_leaves_a_scheduler_that_works(cluster, tmp_path):
    joined(cluster, tmp_path).close()
    engine = joined(cluster, tmp_path)
    assert engine.fetch(run(engine, "grid", "later"))[1][0] == 1.0
    engine.close()


def test_a_scheduler_without_a_dashboard_has_no_page(tmp_path, monkeypatch):
    """And need not have bokeh: what draws is not imported."""

    def refuse(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(module, "import_module", refuse)
    with started(dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}) as cluster:
        engine = joined(cluster, tmp_path)
        assert engine.monitor.page == ""
        engine.monitor.tell("cycle", cycle=0, **CYCLE)
        graph = {}
        assert engine.monitor.picture(graph, NAMES, ("mfs", 0)) == []
        assert engine.fetch(run(engine, "grid", "bare"))[1][0] == 1.0
        assert told(cluster)[engine.monitor.run].cycles == [{"cycle": 0, **CYCLE}]
        engine.close()


def test_old_runs_are_forgotten():
    page = SolverPage()
    for i in range(RUNS_KEPT + 3):
        page.log_event(TOPIC, {"run": f"r{i}", "event": "run"})
        page.log_event("other", {"anything": 1})
    assert list(page.runs) == [f"r{i}" for i in range(3, RUNS_KEPT + 3)]


def test_events_cost_little(engine, monkeypatch):
    """What is told of a graph of iterations is one message of some hundred bytes."""
    sent = []
    monkeypatch.setattr(engine.client, "log_event", lambda *message: sent.append(message))
    engine.monitor.tell("iterations", cycle=0, iterations=10, primal=0.1, dual=0.1, done=False)
    assert len(sent) == 1
    assert len(pickle.dumps(sent)) < 500


def test_a_picture_needs_no_copy_of_the_image_elsewhere(engine):
    """It is made on the worker that has the residual."""
    graph = {}
    mfs = add(graph, NAMES.within("where").key("mfs", 1), np.ones, (30, 20))
    (picture,) = engine.monitor.picture(graph, NAMES.within("where"), mfs)
    kept = add(graph, NAMES.within("where").key("statistics", 1), np.mean, ref(mfs))
    engine.run(graph, [mfs, picture, kept])
    held = engine.client.who_has([engine._futures[key] for key in (mfs, picture)])
    assert held[mfs] == held[picture]
