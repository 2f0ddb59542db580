"""The benchmarks of scale measure what they say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from pfb.graph import grain as grain_module
from pfb.graph.grain import Grain

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports one of the scripts, as it is imported when it runs."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the set lies that all of them use."""
    return tmp_path_factory.mktemp("scale")


TINY = ["--npix", "64", "--nbasis", "2"]


class TestOverhead:
    def test_one_command_measures_and_writes(self, script, folder, capsys, monkeypatch):
        # With images as small as these all would be on one worker.
        monkeypatch.setattr(grain_module, "grain_of", lambda *_: Grain.STEP)
        assert script("scale_overhead").main(["--folder", str(folder), "--nband", "2", *TINY]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 2 | 64 | 2 |")]
        assert len(lines) == 1
        (m,) = json.loads((folder / "scale-overhead.json").read_text())["measured"]
        # What the state is made of before the first iteration comes on top.
        assert m["told_tasks"] <= m["tasks"] < 1.1 * m["told_tasks"]
        # Headers of messages and the numbers of `change` are not foretold.
        assert m["told_moved"] > 0
        assert m["moved"] == pytest.approx(m["told_moved"], rel=0.1)
        assert 0 < m["driver"] < m["cpu"]
        assert m["peak"] > 100 * 2**20
        assert m["told_cpu"] > 0
        assert m["told_peak"] > 0

    def test_what_does_not_fit_is_left_out(self, script, folder, capsys):
        assert script("scale_overhead").main(["--folder", str(folder), "--nband", "2", "--memory", "0.01", *TINY]) == 0
        assert "2 bands of 64 pixels with 2 bases are left out: it needs" in capsys.readouterr().out

    def test_more_bands_than_channels_are_refused(self, script, folder, capsys):
        assert script("scale_overhead").main(["--folder", str(folder), "--nband", "4,17"]) == 2
        assert "--nband is [4, 17] but must be 1 to 16" in capsys.readouterr().err

    def test_times_between_iterations(self, script):
        """Iterations last 1 s, with 0.5 s between them and 2 s where a graph ends; other keys do not count."""
        scale = script("scale")
        keys, now = [(("slope-abc", 0), 0.0, 100.0), (("primal-it00000-abc", 0), 0.0, 100.0)], 1.0
        for k in range(1, 2 * scale.ITERATIONS + 1):
            keys += [((f"grad-it{k:05d}-abc", 0), now, now + 0.6), ((f"primal-it{k:05d}-abc", 0), now + 0.6, now + 1)]
            now += 1 + (2 if k % scale.ITERATIONS == 0 else 0.5)
        assert scale.gaps(keys) == pytest.approx((2.0, 0.5))


class TestWeak:
    def test_workers_grow_with_the_bands(self, script, folder, capsys):
        arguments = ["--folder", str(folder), "--workers", "1,2", "--bands", "1", "--pd-maxit", "2", *TINY]
        assert script("scale_weak").main(arguments) == 0
        lines = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
        assert [[int(n) for n in line] for line in lines[1:]] == [[1, 1], [2, 2]]
        one, two = json.loads((folder / "scale-weak.json").read_text())
        assert one["told_moved"] == one["moved"] == 0
        assert two["moved"] > 0

    def test_too_many_are_refused(self, script, folder, capsys):
        assert script("scale_weak").main(["--folder", str(folder), "--bands", "4", "--workers", "8"]) == 2
        assert "8 workers of 4 bands" in capsys.readouterr().err


class TestPaper:
    ARGUMENTS = ("--sizes", "2048x4,4096x8", "--nodes", "2", "--cores", "4")

    def run(self, script, folder, *more):
        assert script("scale_plan").main(["--folder", str(folder), *self.ARGUMENTS, *more]) == 0
        return json.loads((folder / "scale-plan.json").read_text())

    def test_larger_images_need_more(self, script, tmp_path, capsys):
        small, large = self.run(script, tmp_path)
        assert "run scale_overhead.py with the same folder first" in capsys.readouterr().out
        for what in ("memory", "moved", "cpu", "total", "iteration"):
            assert large[what] > small[what] > 0
        # mean21: a mean and a norm of every coefficient, to the other node and back.
        assert small["moved"] == pytest.approx(2 * 2 * 4 * 2048**2 * 4, rel=0.1)

    def test_a_faster_network_is_faster(self, script, tmp_path):
        slow, fast = (self.run(script, tmp_path, "--network", str(speed))[0] for speed in (0.001, 0.01))
        assert slow["network"] == pytest.approx(10 * fast["network"])
        assert slow["total"] > fast["total"]
        assert slow["cpu"] == fast["cpu"]

    def test_the_plan_is_compared_with_what_was_measured(self, script, tmp_path, capsys):
        case = dict(nband=4, npix=512, nbasis=4, nworker=2, nthread=1, pd_maxit=20)
        told = dict(told_tasks=100, told_moved=1000, told_cpu=2.0, told_peak=10)
        measured = dict(case=case, tasks=110.0, moved=900.0, cpu=3.0, peak=7, **told)
        (tmp_path / "scale-overhead.json").write_text(json.dumps({"measured": [measured]}))
        self.run(script, tmp_path)
        assert "| 4 | 512 | 4 | 1.10 | 0.90 | 1.50 | 0.70 |" in capsys.readouterr().out

    def test_no_nodes_are_refused(self, script, tmp_path, capsys):
        assert script("scale_plan").main(["--folder", str(tmp_path), "--nodes", "0"]) == 2
        assert "must be positive" in capsys.readouterr().err
