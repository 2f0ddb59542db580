"""The benchmark measures what it says, and its score knows good models from bad ones."""

from __future__ import annotations

import importlib
import json
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from pfb.io.sky import Component, offset
from pfb.pipeline.reporting import Silent
from pfb.types import Geometry

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ARCSEC = np.deg2rad(1 / 3600)
GEOMETRY = Geometry(nx=96, ny=120, cell=2 * ARCSEC, ra=1.1, dec=-0.8)
FREQ = [0.9e9, 1.6e9]


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports one of the scripts, as it is imported when it runs."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def at_pixel(ix, iy, **values):
    """Put a component at the centre of a pixel."""
    l, m = (GEOMETRY.nx // 2 - ix) * GEOMETRY.cell, (iy - GEOMETRY.ny // 2) * GEOMETRY.cell
    ra, dec = offset(GEOMETRY.ra, GEOMETRY.dec, l, m)
    return Component(ra=ra, dec=dec, **values)


POINTS = [at_pixel(60, 20, I=1.0, alpha=-0.7), at_pixel(30, 90, I=0.3, alpha=0.5), at_pixel(48, 60, I=0.02)]
EXTENDED = [*POINTS, at_pixel(52, 72, I=2.0, alpha=-0.7, fwhm=11 * ARCSEC)]


def deltas():
    """The points as pixels, at both frequencies."""
    cube = np.zeros((2, GEOMETRY.nx, GEOMETRY.ny))
    for plane, freq in zip(cube, FREQ, strict=True):
        plane[60, 20] = (freq / 1.284e9) ** -0.7
        plane[30, 90] = 0.3 * (freq / 1.284e9) ** 0.5
        plane[48, 60] = 0.02
    return cube


class TestScore:
    def of(self, script, cube, sky):
        score = script("score")
        return score.score(score.Model(GEOMETRY, FREQ, cube), sky)

    def test_truth_itself(self, script):
        cube = np.stack([script("score").truth_image(EXTENDED, GEOMETRY, freq) for freq in FREQ])
        found = self.of(script, cube, EXTENDED)
        assert found.snr > 80
        assert found.flux_ratio == pytest.approx(1, abs=1e-9)

    def test_pixels_with_the_right_fluxes(self, script):
        assert self.of(script, deltas(), POINTS).snr > 80

    def test_twice_the_truth(self, script):
        found = self.of(script, 2 * deltas(), POINTS)
        assert found.snr == pytest.approx(0, abs=1e-6)
        assert found.flux_ratio == pytest.approx(2)

    @pytest.mark.parametrize("axis", [1, 2])
    def test_truth_moved_by_a_pixel_or_mirrored(self, script, axis):
        # Of Gaussians of variance s^2, a distance d apart, the difference has 2 (1 - exp(-d^2 / 4 s^2)) of the power of one.
        power = 2 * (1 - np.exp(-(2**2) * 8 * np.log(2) / 8**2 / 4))
        assert self.of(script, np.roll(deltas(), 1, axis), POINTS).snr == pytest.approx(-10 * np.log10(power), abs=0.1)
        assert self.of(script, np.flip(deltas(), axis), POINTS).snr < 1

    def test_spectrum_turned_round(self, script):
        assert self.of(script, deltas()[0:1].repeat(2, axis=0), POINTS).snr < 20

    def test_gaussian_keeps_its_flux(self, script):
        image = script("score").truth_image(EXTENDED[-1:], GEOMETRY, 1.284e9)
        assert image.sum() == pytest.approx(2.0)
        # Of FWHM 5.5 pixels.
        assert image.max() == pytest.approx(2.0 / (1.1331 * 5.5**2), rel=0.01)

    def test_noise_is_found_off_the_sources(self, script, rng):
        noise = 1e-3 * rng.standard_normal((2, GEOMETRY.nx, GEOMETRY.ny))
        score = script("score")
        expected = score.convolve(noise.mean(axis=0), GEOMETRY.cell, 8 * ARCSEC).std()
        found = self.of(script, deltas() + noise, POINTS)
        assert found.off_source == pytest.approx(expected, rel=0.1)

    def test_source_outside_the_image_does_not_count(self, script):
        outside = [*POINTS, at_pixel(140, 20, I=5.0)]
        assert self.of(script, deltas(), outside).snr > 80


def test_the_sky_stays_what_it_is(script):
    sky = script("synthetic").truth()
    assert len(sky) == 85
    assert sum(c.I for c in sky) == pytest.approx(1.602850, abs=1e-5)
    assert sky[0].I == pytest.approx(6.446e-4, rel=1e-3)


class TestRecorder:
    def test_sums_the_runs_of_a_stage_and_passes_them_on(self, script):
        stages = script("stages")
        told = []

        class Inner(stages.Silent):
            def row(self, values):
                told.append(values)

        with stages.Recorder(Inner()) as recorder:
            for _ in range(2):
                with recorder.stage("grid", 1) as advance:
                    advance(1)
            recorder.row({"cycle": 0})
            recorder.warning("look out")
        assert [(name, s.times) for name, s in recorder.stages.items()] == [("grid", 2)]
        assert recorder.total.seconds >= recorder.stages["grid"].seconds > 0
        assert told == recorder.rows == [{"cycle": 0}]
        assert recorder.warnings == ["look out"]
        table = stages.markdown(recorder).splitlines()
        assert [line.split()[1] for line in table[2:]] == ["grid", "other", "total"]

    def test_memory_of_a_stage(self):
        """In a process of its own: one that has freed much before need not grow."""
        program = (
            "import numpy as np, stages\n"
            "with stages.Recorder() as recorder:\n"
            "    with recorder.stage('before', 1):\n"
            "        pass\n"
            "    with recorder.stage('heavy', 1):\n"
            "        block = np.ones(2**24)\n"
            "    del block\n"
            "print(recorder.stages['before'].peak, recorder.stages['heavy'].peak, recorder.total.peak)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
        before, heavy, total = map(int, done.stdout.split())
        assert heavy - before > 100 * 2**20
        assert total >= heavy

    def test_child_processes_count(self, script):
        stages = script("stages")
        program = "block = bytearray(b'x') * 2**27; print(flush=True); input()"
        with stages.Recorder() as recorder:
            with recorder.stage("alone", 1):
                pass
            with (
                subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
                recorder.stage("together", 1),
            ):
                child.stdout.readline()
        assert recorder.stages["together"].peak - recorder.stages["alone"].peak > 100 * stages.MIB


# A stand-in for the program: it takes models from a folder, and says so if there are none.
WSCLEAN = """#!/bin/sh
if [ "$1" = --version ]; then echo; echo "WSClean version 0.0 (today)"; exit; fi
cd {models} && for model in *.fits; do cp $model $2-$model || exit 3; done
"""

SMALL = "--nant 7 --scans 1 --scan-length 2 --npix 128 --cell 26 --niter 2 --pd-maxit 20 --rmsfactor 0.05".split()
STAGES = {"read", "weight", "grid", "hessian", "update", "primal-dual", "residual", "write", "products", "other", "total"}


@pytest.fixture
def wsclean(tmp_path, monkeypatch):
    """Install the stand-in; returns the folder that its models are put into."""
    program, models = tmp_path / "wsclean", tmp_path / "models"
    models.mkdir()
    program.write_text(WSCLEAN.format(models=models))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return models


class TestSynthetic:
    def test_table_has_all_stages(self, script, tmp_path, capsys):
        synthetic = script("synthetic")
        arguments = ["--folder", str(tmp_path / "made"), *SMALL]
        assert synthetic.main(arguments) == 0
        lines = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        rows = {cells[1].strip(): cells for cells in lines}
        assert rows.keys() >= STAGES | {"pfb"}
        assert int(rows["primal-dual"][2]) == int(rows["residual"][2]) - 1 >= 1  # the first model has a residual too
        assert all(float(rows[stage][5]) > 0 for stage in STAGES - {"other"})

        record = json.loads((tmp_path / "made" / "pfb-benchmark.json").read_text())
        assert record["stages"].keys() >= STAGES - {"other", "total"}
        assert record["options"]["npix"] == "128"
        assert record["options"]["nband"] == 4
        assert [result["imager"] for result in record["results"]] == ["pfb"]
        assert 0 < record["results"][0]["thermal"] < record["results"][0]["residual"]

    def test_the_set_is_made_once(self, script, tmp_path):
        synthetic = script("synthetic")
        small = synthetic.Simulation(**{**vars(synthetic.OBSERVATION), "nant": 4, "scans": 1, "scan_length": 0.5})
        other = synthetic.Simulation(**{**vars(small), "nant": 5})
        made = [synthetic.simulate(tmp_path, s, Silent()).stat().st_ino for s in (small, small, other)]
        assert made[0] == made[1] != made[2]

    def test_wsclean_is_scored_alike(self, script, tmp_path, wsclean):
        synthetic, score = script("synthetic"), script("score")
        geometry = Geometry(nx=160, ny=160, cell=20 * ARCSEC, ra=np.deg2rad(63.36), dec=np.deg2rad(-45.0))
        freq = [1.0e9, 1.2e9, 1.4e9, 1.6e9]
        for i, nu in enumerate(freq):
            # The conventions of FITS that all imagers share.
            header = fits.Header(dict(CTYPE3="FREQ", CRVAL1=63.36 - 360, CRVAL2=-45.0, CRVAL3=nu))
            header.update(CDELT1=-20 / 3600, CDELT2=20 / 3600)
            data = score.truth_image(synthetic.truth(), geometry, nu).T[None, None]
            fits.writeto(wsclean / f"{i:04d}-model.fits", data.astype("f4"), header)
        fits.writeto(wsclean / "MFS-residual.fits", np.zeros((1, 1, 160, 160), "f4"))
        model = score.Model(geometry, freq, np.zeros((4, 160, 160)))
        config = synthetic.configure([], str(tmp_path / "pfb"))
        result = synthetic.run_wsclean("a.ms", str(tmp_path / "out"), config, model, thermal=1.0)
        assert result.score.snr > 80
        assert result.imager == "WSClean version 0.0"
        assert result.residual == 0

    def test_memory_is_that_of_the_program_not_of_who_started_it(self, script):
        resident = script("wsclean").resident
        ours = np.ones(80_000_000)  # 640 MB here
        code = "x = bytearray(200_000_000); print(1, flush=True); input()"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        found = resident(child.pid)
        child.communicate(b"\n")
        assert ours.nbytes > 600e6
        assert 200e6 < found < 400e6

    def test_wsclean_that_fails_says_why(self, script, tmp_path, wsclean):
        with pytest.raises(RuntimeError, match=r"(?s)ended with exit code 3:.*No such file"):
            script("wsclean").run(
                "a.ms", str(tmp_path / "out"), GEOMETRY, nband=4, robust=0.0, nthread=1, field=0, column="DATA"
            )

    def test_wsclean_that_is_absent_is_left_out(self, script, monkeypatch):
        monkeypatch.setenv("PATH", "")
        assert script("wsclean").missing() == "no program wsclean is installed"

    @pytest.mark.parametrize("arguments", [["--nitre", "3"], ["--niter", "none"], ["--robust", "9"], ["a.ms"]])
    def test_unknown_options_are_errors(self, script, tmp_path, capsys, arguments):
        assert script("synthetic").main(["--folder", str(tmp_path), *arguments]) == 2
        assert capsys.readouterr().err.startswith("synthetic: ")

    def test_help_explains(self, script, capsys):
        with pytest.raises(SystemExit):
            script("synthetic").main(["--help"])
        text = capsys.readouterr().out
        assert "pfb clean" in text
        assert "--wsclean" in text


def test_score_of_files(script, tmp_path, capsys):
    score = script("score")
    with pytest.raises(SystemExit):
        score.main(["--help"])
    truth = tmp_path / "truth.ecsv"
    script("synthetic").write_sky(truth, POINTS)
    capsys.readouterr()
    assert score.main([str(truth), str(tmp_path / "*-model.fits")]) == 2
    assert "no file is named" in capsys.readouterr().err


class TestKernels:
    def test_one_command_compares_and_writes(self, script, tmp_path, capsys):
        script("kernels").main(["--npix", "128", "--repeat", "1", "--output", str(tmp_path / "k.json")])
        printed, found = capsys.readouterr().out, json.loads((tmp_path / "k.json").read_text())
        assert {row["peer"] for row in found["rows"]} >= {"PyWavelets", "ducc0 without pruning"}
        for row in found["rows"]:
            assert row["error"] < (1e-13 if row["work"].endswith("f8") else 1e-5)
            assert row["ratio"] == pytest.approx(row["theirs"] / row["ours"])
            assert f"| {row['work']} | {row['peer']} |" in printed
        assert "pfb-imaging is left out" in printed
        assert 0 < found["first_call"]["warm"] < found["first_call"]["cold"]

    def test_a_peer_that_answers_is_timed_in_turns(self, script, tmp_path, monkeypatch):
        """By a stand-in that speaks as peer.py does."""
        kernels = script("kernels")
        fake = tmp_path / "python"
        calls = tmp_path / "calls"
        fake.write_text(f"#!/bin/sh\necho ready\nwhile read name; do echo $name >> {calls}; echo 0.5; done\n")
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        rows = kernels.incumbent(str(fake), 32, 3)
        assert [row.theirs for row in rows] == [500.0] * 6
        assert all(row.ours > 0 for row in rows)
        expected = ["dot"] * 3 + ["hdot"] * 3 + ["iteration"] * 6 + ["dot"] * 3 + ["hdot"] * 3
        assert calls.read_text().split() == expected

    def test_a_peer_that_does_not_run_is_an_error(self, script, tmp_path):
        fake = tmp_path / "python"
        fake.write_text("#!/bin/sh\nexit 1\n")
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        with pytest.raises(SystemExit, match="does not run in the environment that --peer names"):
            script("kernels").Peer(str(fake), 32, ("self",), 1)


def test_layouts_are_compared_on_threads_and_workers(script, capsys):
    """On one worker four of them, on two workers those with single bands; all bring the same images."""
    script("layouts").main(["--npix", "48", "--nband", "2", "--repeat", "1", "--threads", "2"])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    where = [line[0] for line in lines]
    assert [where.count(w) for w in dict.fromkeys(where)] == [4, 4, 2]
    assert all(float(line[6]) < 1e-5 for line in lines)
    assert [float(line[6]) for line in lines if line[1].startswith("1 of 4 bases")] == [0.0] * 5
    tasks = {line[1]: int(line[2]) for line in lines[:4]}
    assert tasks["1 of 4 bases, 1 of 2 bands"] > tasks["1 of 4 bases, 2 of 2 bands"] > tasks["4 of 4 bases, 2 of 2 bands"]


class TestPriors:
    def test_one_command_compares_and_writes(self, script, tmp_path, capsys, monkeypatch):
        priors, synthetic = script("priors"), script("synthetic")
        small = synthetic.Simulation(**{**vars(synthetic.OBSERVATION), "nant": 8, "scans": 1, "scan_length": 0.5})
        monkeypatch.setattr(synthetic, "OBSERVATION", small)
        monkeypatch.setattr(priors, "OPTIONS", {**priors.OPTIONS, "npix": "96", "cell": 30.0})
        arguments = ["--folder", str(tmp_path), "--skies", "extended", "--rmsfactors", "0.3", "--niter", "2"]
        for _ in range(2):  # the set is made once
            assert priors.main(arguments) == 0
        printed, found = capsys.readouterr().out, json.loads((tmp_path / "priors.json").read_text())
        assert printed.count("simulate") == 1
        assert [(line["sky"], line["prior"], line["rmsfactor"]) for line in found] == [
            ("extended", "mean21", 0.3),
            ("extended", "l21", 0.3),
        ]
        assert all(line["snr"] > 0 for line in found)
        assert printed.splitlines()[-1].startswith("| extended | l21 | 0.3 |")

    def test_the_truth_is_complete_and_has_the_right_spectra(self, script):
        priors, score = script("priors"), script("score")
        cube = np.stack([score.truth_image(POINTS, GEOMETRY, freq) for freq in FREQ])
        model = score.Model(GEOMETRY, FREQ, cube)
        assert priors.sources(model, POINTS, noise=2e-3) == pytest.approx((1.0, 0.0), abs=1e-9)
        cube[1] *= 1.1
        cube[:, 48, 60] = 0  # the only faint point
        slope = np.log(1.1) / np.log(FREQ[1] / FREQ[0])
        assert priors.sources(model, POINTS, noise=2e-3) == pytest.approx((0.0, slope), rel=1e-3)

    def test_long_baselines_are_flagged(self, script, tmp_path):
        priors, synthetic = script("priors"), script("synthetic")
        observation = synthetic.Simulation(**{**vars(synthetic.OBSERVATION), "nant": 5, "scans": 1, "scan_length": 0.2})
        path = str(tmp_path / "a.ms")
        synthetic.write_set(path, synthetic.lay_out(observation, synthetic.truth()[:3]), overwrite=True)
        priors.shorten(path, 9000.0)
        with priors.arcae.table(path) as table:
            uvw, flag = table.getcol("UVW"), table.getcol("FLAG")
        with priors.arcae.table(f"{path}/SPECTRAL_WINDOW") as windows:
            wavelengths = np.hypot(uvw[:, 0], uvw[:, 1]) * windows.getcol("CHAN_FREQ").max() / 299792458.0
        assert (wavelengths > 9000).any()
        assert flag[wavelengths > 9000].all()
        assert not flag[wavelengths < 9000].all(axis=(1, 2)).any()

    def test_unknown_options_are_errors(self, script, tmp_path, capsys):
        assert script("priors").main(["--folder", str(tmp_path), "--nitre", "3"]) == 2
        assert capsys.readouterr().err.startswith("priors: ")


class TestSteps:
    def test_ours_need_the_fewest_iterations(self, script, tmp_path, capsys):
        script("steps").main(["--npix", "32", "--maxit", "300", "--output", str(tmp_path / "s.json")])
        found = json.loads((tmp_path / "s.json").read_text())
        theirs, plain, ours = (row[0] for row in found["iterations"].values())
        assert ours * 2.5 < plain < (theirs or 300)
        assert capsys.readouterr().out.splitlines()[-1].startswith("| ours, preconditioned | ")

    def test_an_objective_counts_as_near_when_it_stays_so(self, script):
        count = script("steps").count
        assert count([100.0, 0.5, 2.0, 0.5, 0.05, 0.005, 0.0], 0.0) == [3, 4, 5]
        assert count([100.0, 50.0, 0.5], 0.0) == [2, None, None]


class TestCleaning:
    def test_an_unknown_algorithm_is_refused(self, script, tmp_path, capsys):
        assert script("cleaning").main(["--folder", str(tmp_path), "--algorithms", "clark,entropy"]) == 1
        assert "--algorithms has entropy but must be of sara, hogbom" in capsys.readouterr().err

    def test_residuals_are_shown_over_those_of_wsclean(self, script):
        cleaning, synthetic = script("cleaning"), script("synthetic")
        score = script("score").Score(20.0, 1.0, 1e-6, 1e-6, 1e-6)
        ours = synthetic.Result("pfb clark", score, 3e-6, 1e-6, 1.0, 1.0, 1)
        theirs = ours._replace(imager="WSClean", residual=4e-6)
        assert "over that of WSClean: pfb clark 0.750" in cleaning.table([ours, theirs])
        assert "over that" not in cleaning.table([ours])
