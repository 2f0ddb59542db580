"""What a run takes beside memory: tasks, traffic and time, the same in `pfb plan` and in the first lines of `pfb clean`."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pfb.config import Clean, Image
from pfb.graph import grain as grain_module
from pfb.graph.grain import Grain
from pfb.graph.primal_dual import ITERATIONS
from pfb.pipeline import forecast as module
from pfb.pipeline.forecast import COUNTED, announce, duration, forecast, seconds, size_of, solver_of, traffic
from pfb.pipeline.imaging import plan
from pfb.pipeline.reporting import Silent


def planned(observed, kind=Clean, **given):
    config = kind(**dict(output="x", npix="200", cell=2.0, nband=8) | given)
    return plan((observed,), config, Silent())[1], config


def engine(nworker=1, nthread=2):
    return SimpleNamespace(nworker=nworker, nthread=nthread, memory=0)


def test_iterations_are_counted_over_a_graph():
    assert COUNTED == ITERATIONS


@pytest.fixture
def fine(monkeypatch):
    """Every step is a task, though images are small."""
    monkeypatch.setattr(grain_module, "grain_of", lambda *_: Grain.STEP)


def test_joined_tasks_are_fewer_and_move_the_same_or_nothing(observed, monkeypatch):
    made, config = planned(observed)
    found = {}
    for grain in Grain:
        monkeypatch.setattr(grain_module, "grain_of", lambda *_, grain=grain: grain)
        found[grain] = forecast(made, config, 2, 1)
    assert found[Grain.WORKER].moved == found[Grain.STEP].moved > 0
    assert found[Grain.BLOCK].moved == 0
    assert found[Grain.STEP].tasks > 5 * found[Grain.WORKER].tasks > 20 * found[Grain.BLOCK].tasks


@pytest.mark.usefixtures("fine")
class TestTraffic:
    def of(self, observed, nworker, **given):
        made, config = planned(observed, **given)
        solver = solver_of(made, config, nworker, 1)
        return traffic(solver)[1], solver.dictionary.codomain[0] * solver.dictionary.codomain[1]

    def test_one_worker_moves_nothing(self, observed):
        assert self.of(observed, 1)[0] == 0

    @pytest.mark.parametrize("prior", ["l21", "mean21"])
    @pytest.mark.parametrize("nworker", [2, 4, 8])
    def test_every_worker_sends_its_sum_and_is_sent_the_factors(self, observed, prior, nworker):
        """If the bands of each are a branch of the tree; in single precision, and `mean21` has two sums."""
        moved, coefficients = self.of(observed, nworker, prior=prior)
        assert moved == 2 * (nworker - 1) * coefficients * 4 * {"l21": 1, "mean21": 2}[prior]

    def test_double_precision_moves_twice_as_much(self, observed):
        assert self.of(observed, 2, precision="double")[0] == 2 * self.of(observed, 2)[0]

    def test_workers_whose_bands_are_no_branch_send_more_sums(self, observed):
        """Eight bands on three workers: 0-2, 3-5, 6-7 are cut into 0-1, 2, 3, 4-5, 6-7, five sums in place of three."""
        moved, coefficients = self.of(observed, 3, prior="l21", bases="self,db1,db2")
        # The sums of a basis are made on worker 0, 1 or 2, which have 2, 2 and 1 of the five; the factors go to two others.
        assert moved == (3 + 3 + 4 + 3 * 2) * coefficients // 3 * 4


def test_more_of_anything_takes_longer(observed):
    made, config = planned(observed)
    few = seconds(made, config)
    for more in (dict(npix="400"), dict(precision="double"), dict(bases="self,db1,db2,db3,db4,db5,db6")):
        assert seconds(*planned(observed, **more)).iteration > 1.2 * few.iteration
    assert seconds(*planned(observed, npix="400")).residual > 3 * few.residual
    assert seconds(*planned(observed, wgridding=False)).residual < few.residual
    assert seconds(*planned(observed, cg_maxit=1)).end < few.end


def test_samples_take_time_until_convolutions_take_less(observed, monkeypatch):
    made, config = planned(observed)

    def with_samples(count):
        monkeypatch.setattr(module, "samples_of", lambda plan, band: count)
        return seconds(made, config)

    none, some, many, more = map(with_samples, (0, 20_000, 10_000_000, 20_000_000))
    assert some.iteration > none.iteration
    assert more.iteration == many.iteration
    assert more.residual - many.residual == pytest.approx(8 * 2 * 1e7 * module.SAMPLE * 1e-9)


def test_a_larger_field_turns_more(observed):
    made, config = planned(observed)
    wide = replace(made, geometry=replace(made.geometry, cell=20 * made.geometry.cell), longest=made.longest * 20)
    assert seconds(wide, config).residual > 1.5 * seconds(made, config).residual


@pytest.mark.usefixtures("fine")
def test_workers_share_the_work_and_cost_some(observed):
    made, config = planned(observed, npix="2000")
    one, two = (forecast(made, config, n, 1) for n in (1, 2))
    assert two.tasks > one.tasks
    assert one.cpu.iteration < two.cpu.iteration < 1.5 * one.cpu.iteration
    assert (one.cores, two.cores) == (1, 2)
    assert 0.4 < two.seconds / one.seconds < 0.8
    # More cores than bands and bases have nothing to do.
    assert forecast(made, config, 1, 1000).cores == 8 * 4


def test_the_line_says_what_the_forecast_has(observed):
    made, config = planned(observed, niter=3, pd_maxit=7)
    one, two = (forecast(made, config, n, 2 // n) for n in (1, 2))
    tasks = [f"{found.tasks} task{'s' * (found.tasks > 1)}" for found in (one, two)]
    assert announce(made, config, engine()).endswith(
        f"; {tasks[0]} per iteration; at most 3 cycles of 7 iterations, about {duration(one.seconds)}"
    )
    line = announce(made, config, engine(nworker=2))
    assert re.match(r"about [\d.]+ GiB of memory per worker will be used, of ", line)
    assert f"; {tasks[1]} and {size_of(two.moved)} between workers per iteration; " in line


def test_images_have_no_iterations_to_foretell(observed):
    assert "iteration" not in announce(*planned(observed, kind=Image), engine())


def test_a_run_begins_with_what_the_plan_says(pfb, observed, tmp_path):
    words = [observed, *"--npix 64 --cell 2 --nband 2 --niter 1 --pd-maxit 3 --threads-per-worker 2".split()]
    said = pfb("clean", *words, "-o", tmp_path / "x")
    asked = pfb("plan", *words)
    assert said.code == asked.code == 0
    (line,) = [line for line in (said.out + said.err).splitlines() if " per iteration; " in line]
    rows = dict(re.split(r" {2,}", row.strip(), maxsplit=1) for row in asked.out.splitlines() if "  " in row.strip())
    assert f"; {rows['tasks of an iteration']} task" in line
    assert f"about {rows['at most']} of memory" in line
    assert line.split("about ")[-1] == rows["time"].split("about ")[-1].split(" on ")[0]


@pytest.mark.parametrize(("count", "text"), [(5e7, "47.7 MiB"), (3 * 2**30, "3 GiB"), (0, "0 MiB")])
def test_sizes_are_readable(count, text):
    assert size_of(count) == text


@pytest.mark.parametrize(("count", "text"), [(8.2, "8.2 s"), (150, "2.5 minutes"), (3599, "60 minutes"), (12_000, "3.3 hours")])
def test_durations_are_readable(count, text):
    assert duration(count) == text
