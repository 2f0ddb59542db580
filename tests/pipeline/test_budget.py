"""The memory that a run takes: known before, measured, and refused if it is not there."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pfb.config import Clean, Image
from pfb.errors import InputError
from pfb.graph import grain as grain_module
from pfb.graph.grain import Grain
from pfb.pipeline import budget as module
from pfb.pipeline.budget import GIB, PROCESS, allowed, budget, disk, largest, limit, require, samples_of, shrunk
from pfb.pipeline.checkpoint import Safety
from pfb.pipeline.imaging import plan
from pfb.pipeline.reporting import Silent


def planned(observed, kind=Clean, **given):
    config = kind(output="x", npix="1000", cell=2.0, **given)
    return plan((observed,), config, Silent())[1], config


def needs(observed, nworker=1, nthread=2, **given):
    return budget(*planned(observed, **given), nworker, nthread)


def engine(nworker=1, nthread=2, memory=0):
    return SimpleNamespace(nworker=nworker, nthread=nthread, memory=memory)


def test_more_of_anything_needs_more(observed):
    one = needs(observed, nband=4)
    assert set(one.stages) == {"grid", "primal-dual", "residual", "products"}
    for more in (dict(nband=8), dict(precision="double"), dict(bases="self,db1,db2,db3,db4,db5,db6")):
        assert needs(observed, **dict(nband=4) | more).worker > 1.15 * one.worker - 0.15 * PROCESS
    assert needs(observed, nworker=4, nband=4).worker < one.worker
    # The worker with most bands counts; the samples make hardly a difference here.
    three, four = (needs(observed, nworker=2, nband=n).worker for n in (3, 4))
    assert three == pytest.approx(four, rel=1e-3)
    assert set(needs(observed, kind=Image).stages) == {"grid", "products"}


def test_weights_that_are_renewed_need_more(observed, monkeypatch):
    monkeypatch.setattr(module, "samples_of", lambda plan, band: 10_000_000)
    plain, robust = (needs(observed, nband=4, robust_reweight_at=at) for at in (None, "2"))
    assert set(robust.stages) == set(plain.stages) | {"reweigh"}
    for stage in ("primal-dual", "residual"):
        # The model of every band in single precision stays as well.
        assert robust.stages[stage] - plain.stages[stage] == 40_000_000 * 16 + 4 * 4 * 1000**2


def test_samples_are_counted_band_by_band(observed):
    """Three baselines, seven or eight times, two channels of four bands."""
    made, _ = planned(observed, nband=4)
    counts = [samples_of(made, band) for band in range(4)]
    assert len(set(counts)) == 1
    assert counts[0] in (3 * 7 * 2, 3 * 8 * 2)
    assert needs(observed, nband=4).samples == sum(counts)


def test_many_samples_keep_psfs(observed, monkeypatch):
    few = needs(observed, nband=4).stages["residual"]
    monkeypatch.setattr(module, "samples_of", lambda plan, band: 100_000 if band < 3 else 10_000)
    assert needs(observed, nband=4).stages["residual"] - few == pytest.approx(
        3 * module.CONVOLUTIONS * 1000**2 + 310_000 * module.SAMPLE, rel=1e-3
    )


def test_the_largest_image_that_fits_does_and_the_next_does_not(observed):
    made, config = planned(observed, nband=4)
    there = int(0.8 * budget(made, config, 1, 2).worker)
    npix = largest(made, config, 1, 2, there)
    assert npix % 2 == 0
    assert budget(shrunk(made, npix), config, 1, 2).worker <= there
    assert budget(shrunk(made, npix + 2), config, 1, 2).worker > there
    assert largest(made, config, 1, 2, 0) == 2


def test_what_does_not_fit_is_refused_and_what_would_is_said(observed, monkeypatch):
    made, config = planned(observed, nband=4)
    needed = budget(made, config, 1, 2).worker
    monkeypatch.setattr(module, "memory_limit", lambda: needed + 1)
    assert require(made, config, engine()).startswith(f"about {needed / GIB:.3g} GiB of memory will be used, of ")
    monkeypatch.setattr(module, "memory_limit", lambda: needed - 1)
    npix = largest(made, config, 1, 2, needed - 1)
    with pytest.raises(InputError, match=rf"4 bands of 1000 x 1000 pixels need about .* GiB .* give --npix {npix} or less"):
        require(made, config, engine())
    assert require(made, config, engine(nworker=2, memory=needed)).count("per worker") == 1


def test_workers_of_this_machine_share_its_memory(observed, monkeypatch):
    monkeypatch.setattr(module, "memory_limit", lambda: 12 * GIB)
    _, config = planned(observed)
    _, joined = planned(observed, scheduler="tcp://127.0.0.1:1")
    assert allowed(engine(nworker=3), config) == 4 * GIB
    assert allowed(engine(nworker=3, memory=GIB), config) == GIB
    assert allowed(engine(nworker=3, memory=GIB), joined) == GIB
    assert allowed(engine(nworker=3), joined) == 0
    assert allowed(engine(nworker=3), planned(observed, workers=3, cluster="ssh")[1]) == 0
    assert allowed(engine(nworker=3), planned(observed, workers=3, cluster="local")[1]) == 4 * GIB
    assert "of memory" in require(*planned(observed, scheduler="tcp://127.0.0.1:1"), engine())


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 8 * GIB),
        ({"SLURM_MEM_PER_NODE": "2048"}, 2 * GIB),
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "6"}, 3 * GIB),
        ({"SLURM_MEM_PER_NODE": "20480"}, 8 * GIB),
    ],
)
def test_the_least_limit_counts(environment, expected, monkeypatch):
    monkeypatch.setattr(module, "memory_limit", lambda: 8 * GIB)
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert limit() == expected


@pytest.mark.parametrize(("nband", "threads"), [(4, 2), (2, 1)])
def test_it_is_what_a_run_takes(observed, tmp_path, nband, threads):
    """Within a fifth."""
    words = ["clean", observed, "-o", str(tmp_path / "x"), "--npix", "1000", "--cell", "2", "--niter", "2", "--pd-maxit", "12"]
    words += ["--nband", str(nband), "--threads-per-worker", str(threads)]
    # Not from getrusage, whose peak may be that of who started the process.
    code = "import sys\nfrom pfb.cli import main\nassert main(sys.argv[1:]) == 0\nprint(open('/proc/self/status').read())"
    run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    measured = 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", run.stdout)[1])
    expected = needs(observed, nthread=threads, nband=nband).worker
    assert expected == pytest.approx(measured, rel=0.2)


def test_products_that_do_not_fit_the_disk_are_refused_before_the_work(refused, observed, tmp_path, monkeypatch):
    words = ["clean", observed, "-o", tmp_path / "x", "--npix", "1000", "--cell", "2", "--nband", "4"]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**7))
    found = refused(*words, folder=tmp_path)
    assert re.search(rf"the products need about [\d.]+ GiB but {tmp_path} has 0.00931 GiB free: make room", found)


@pytest.mark.parametrize("kind", ["image", "clean"])
def test_the_disk_that_products_take_is_known(pfb, observed, tmp_path, kind):
    """But for compression, which does little for noise."""
    words = [kind, observed, "-o", tmp_path / "x", "--npix", "300", "--cell", "2", "--nband", "2"]
    assert pfb(*words, *(["--niter", "1", "--pd-maxit", "2"] if kind == "clean" else [])).code == 0
    written = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png")
    options = dict(output="x", npix="300", cell=2.0, nband=2)
    config = Clean(checkpoint=0, **options) if kind == "clean" else Image(**options)
    expected = disk(plan((observed,), config, Silent())[1], config)
    assert 0.6 * expected < written < 1.05 * expected


def test_a_worker_that_has_all_bands_needs_memory_for_all(observed, monkeypatch):
    monkeypatch.setattr(grain_module, "grain_of", lambda *_: Grain.BLOCK)
    one, two = (needs(observed, nworker=n, nthread=1, nband=4).stages for n in (1, 2))
    assert two["primal-dual"] == one["primal-dual"]
    assert two["residual"] < one["residual"]


def test_the_disk_that_checkpoints_take_is_known(pfb, observed, tmp_path, monkeypatch):
    """Twice that of one; the largest is one within a minimisation whose model is not the best one."""
    found, save = [], Safety.save

    def saved(self, *args):
        save(self, *args)
        found.append(sum(path.stat().st_size for path in self.checkpoints.path.rglob("*.npy")))

    monkeypatch.setattr(Safety, "save", saved)
    words = ["--npix", "300", "--cell", "2", "--nband", "2", "--niter", "1", "--pd-maxit", "20", "--checkpoint", "1"]
    assert pfb("clean", observed, "-o", tmp_path / "x", *words).code == 0
    with_, without = (Clean(output="x", npix="300", cell=2.0, nband=2, checkpoint=n) for n in (None, 0))
    planned = plan((observed,), with_, Silent())[1]
    expected = disk(planned, with_) - disk(planned, without)
    assert 0.5 * expected < 2 * max(found) <= expected


class TestPlan:
    def test_it_says_what_clean_would_take_and_writes_nothing(self, pfb, observed, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        answer = pfb("plan", observed, "--npix", "1000", "--cell", "2", "--nband", "4", "-o", "x")
        assert answer.code == 0, answer
        assert "4 bands of 1000 x 1000 pixels" in answer.out + answer.err
        worker = needs(observed, nband=4).worker
        rows = dict(line.strip().rsplit("  ", 1) for line in answer.out.splitlines() if "  " in line.strip())
        rows = {name.strip(): value.strip() for name, value in rows.items()}
        assert float(rows["at most"].split()[0]) == pytest.approx(worker / GIB, rel=0.01)
        assert rows["between workers per iteration"] == "0 MiB"
        assert int(rows["tasks of an iteration"]) == 25
        assert not list(tmp_path.iterdir())

    def test_workers_have_less_each_and_talk(self, pfb, observed):
        answer = pfb("plan", observed, "--npix", "1000", "--cell", "2", "--nband", "4", "--workers", "2", "--prior", "l21")
        assert answer.code == 0
        assert "Memory of each worker" in answer.out
        nbasis, ncoefficient = 4, 1000 * 1000
        moved = float(answer.out.split("between workers per iteration")[1].split()[0])
        assert moved == pytest.approx(2 * nbasis * ncoefficient * 4 / 2**20, rel=0.05)

    def test_what_does_not_fit_is_said(self, pfb, observed, monkeypatch):
        monkeypatch.setattr("pfb.pipeline.budget.memory_limit", lambda: GIB // 2)
        answer = pfb("plan", observed, "--npix", "1000", "--cell", "2")
        assert answer.code == 0
        assert "largest square image that fits" in answer.out

    def test_a_cluster_elsewhere_is_refused(self, pfb, observed):
        answer = pfb("plan", observed, "--cluster", "slurm", "--workers", "2")
        assert answer.code == 2
        assert "--cluster slurm is not looked at here: leave it out, and give the --workers" in answer.err
        assert pfb("plan", observed, "--cluster", "local", "--workers", "2", "--npix", "100", "--cell", "4").code == 0

    def test_a_scheduler_is_refused(self, pfb, observed):
        answer = pfb("plan", observed, "--scheduler", "tcp://127.0.0.1:1")
        assert answer.code == 2
        assert "give the --workers" in answer.err
