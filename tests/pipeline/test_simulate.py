from dataclasses import fields

import numpy as np
import pytest

from pfb.config import Simulate
from pfb.errors import InputError
from pfb.io.measurement_set import Selection, select
from pfb.io.simulated_set import Simulation
from pfb.io.simulated_visibilities import predict
from pfb.io.sky import read_sky
from pfb.pipeline import simulate
from pfb.pipeline.reporting import Silent
from tests.observations import read_window

SMALL = dict(nant=6, nchan=4, nsource=10, scans=1, scan_length=1.0, dump=20.0)


class Recorder(Silent):
    def __init__(self):
        self.done, self.total, self.warnings, self.summaries = [], None, [], []

    def stage(self, name, total):
        self.total = total
        return self

    def __enter__(self):
        return self.done.append

    def __exit__(self, *_):
        return None

    def warning(self, text):
        self.warnings.append(text)

    def summary(self, title, values):
        self.summaries.append((title, values))


def test_every_parameter_but_the_hidden_ones_is_an_option():
    hidden = {"calibrators", "defects"}
    assert {f.name for f in fields(Simulation)} - hidden <= {f.name for f in fields(Simulate)}


def test_the_set_holds_the_sky_that_is_written_beside_it(tmp_path):
    report = Recorder()
    path = tmp_path / "demo.ms"
    simulate.run(str(path), Simulate(**SMALL, sefd=0.0, rfi=0.0), report)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo-truth.ecsv", "demo.ms"]
    sky = read_sky(tmp_path / "demo-truth.ecsv")
    assert len(sky) == 15
    assert {c.ref_freq for c in sky} == {1.284e9}
    data = select([str(path)], Selection())
    np.testing.assert_allclose(np.rad2deg([data.ra, data.dec]), [63.36, -45.0])
    uvw, vis, weight = read_window(data.windows[0])
    expected = predict(uvw, data.windows[0].freq, sky, (data.ra, data.dec), (9, 10, 11, 12))
    assert weight.min() > 0
    assert abs(expected).max() > 0.5
    np.testing.assert_allclose(vis, expected, atol=1e-5)
    assert sum(report.done) == report.total == 3
    assert not report.warnings
    ((title, values),) = report.summaries
    assert title == str(path)
    assert values["rows"] == "135"
    assert values["elevation"] == "47 to 47 deg"
    assert values["sky"].startswith("15 components")
    assert values["sky"].endswith("demo-truth.ecsv")


def test_the_target_is_where_and_what_it_is_asked_to_be(tmp_path):
    sky = tmp_path / "sky.yaml"
    sky.write_text("- {ra: 10.0, dec: -30.0, I: 2.0}\n")
    path = tmp_path / "a.ms"
    simulate.run(str(path), Simulate(**SMALL, sky=str(sky), ra=10.0, dec=-30.0, band="UHF", nspw=2, sefd=0.0, rfi=0.0), Silent())
    data = select([str(path)], Selection())
    assert len(data.windows) == 2
    assert 544e6 < data.windows[0].freq[0] < data.windows[1].freq[-1] < 1088e6
    # A point at the phase centre is 2 Jy in XX and YY and nothing across.
    vis = np.concatenate([read_window(w)[1] for w in data.windows])
    np.testing.assert_allclose(vis, np.broadcast_to([2, 0, 0, 2], vis.shape), atol=1e-6)


def test_a_target_below_the_horizon_is_warned_of(tmp_path):
    report = Recorder()
    simulate.run(str(tmp_path / "a.ms"), Simulate(**SMALL, dec=80.0), report)
    (warning,) = report.warnings
    assert "the target is below the horizon" in warning
    assert "change --start, --ra or --dec" in warning


@pytest.mark.parametrize("existing", ["a.ms", "a-truth.ecsv"])
def test_what_exists_is_replaced_only_if_asked(tmp_path, existing):
    config = Simulate(**SMALL)
    simulate.run(str(tmp_path / "a.ms"), config, Silent())
    other = tmp_path / ("a-truth.ecsv" if existing == "a.ms" else "a.ms")
    other.rename(tmp_path / "gone")
    with pytest.raises(InputError, match=rf"{existing} exists already"):
        simulate.run(str(tmp_path / "a.ms"), config, Silent())
    assert not other.exists()
    simulate.run(str(tmp_path / "a.ms"), Simulate(**SMALL, overwrite=True, seed=1), Silent())
    assert other.exists()


def test_a_run_that_dies_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "write_set", fail)
    with pytest.raises(KeyboardInterrupt):
        simulate.run(str(tmp_path / "a.ms"), Simulate(**SMALL), Silent())
    assert not list(tmp_path.iterdir())


def test_a_bad_sky_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"the sky none\.yaml does not exist"):
        simulate.run(str(tmp_path / "a.ms"), Simulate(**SMALL, sky="none.yaml"), Silent())
    assert not list(tmp_path.iterdir())
