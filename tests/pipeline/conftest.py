"""What the tests of the pipelines share: a reporter that remembers, and the command line in this process."""

from __future__ import annotations

import os
from collections import namedtuple

import pytest
from distributed import LocalCluster

from pfb import cli
from pfb.config import Clean
from pfb.io.measurement_set import release
from pfb.io.sky import random_sky
from pfb.pipeline import clean, imaging, products
from pfb.pipeline.reporting import Silent
from tests.deployments import jobs, running_slurm
from tests.observations import ROOT, small_set
from tests.pipeline.small_runs import FEW, NEAR, sky, stokes_i

Answer = namedtuple("Answer", "code out err")


class Recorder(Silent):
    """Remembers what it was told."""

    def __init__(self):
        self.messages, self.warnings, self.rows, self.summaries = [], [], [], []

    def message(self, text):
        self.messages.append(text)

    def warning(self, text):
        self.warnings.append(text)

    def row(self, values):
        self.rows.append(values)

    def summary(self, title, values):
        self.summaries.append((title, values))


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture(autouse=True)
def _close_tables():
    yield
    release()


@pytest.fixture
def pfb(capsys):
    """Run the command line in this process: ``pfb("image", path, ...)`` returns its exit code and what it wrote."""

    def run(*words):
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def refused(pfb):
    """Run a command that must be refused with one sentence, exit code 2 and nothing written; returns the sentence."""

    def run(*words, folder):
        before = tree(folder)
        answer = pfb(*words)
        assert answer.code == 2, answer
        assert answer.err.startswith("pfb: ")
        assert answer.err.count("\n") == 1, "more than one line"
        assert "Traceback" not in answer.err + answer.out
        assert tree(folder) == before, "something was written"
        return answer.err.removeprefix("pfb: ").strip()

    return run


@pytest.fixture
def no_picture(monkeypatch):
    """Write an empty file for the picture, which takes longer than all else of a small run."""
    monkeypatch.setattr(products, "quicklook", lambda path, *_, **__: path.write_bytes(b""))


@pytest.fixture
def dataset_only(monkeypatch):
    """Leave out the products that are made from the dataset."""
    monkeypatch.setattr(imaging, "write_products", lambda *_, **__: [])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A set that takes a tenth of a second to clean; its sources fill the image."""
    return small_set(tmp_path_factory.mktemp("small") / "a.ms", sky=sky(NEAR), nant=12, sefd=2_000.0).path


@pytest.fixture
def run(dataset_only, small, tmp_path):
    """Clean the small set with options, and return its dataset."""
    count = 0

    def make(*sets, report=None, **options):
        nonlocal count
        count += 1
        config = Clean(output=str(tmp_path / f"out{count}"), **(FEW | options))
        clean.run(sets or (small,), config, report or Silent())
        return stokes_i(tmp_path / f"out{count}.zarr", needs="clean").load()

    return make


@pytest.fixture(scope="session")
def observed(tmp_path_factory):
    """Three dishes for a minute, eight channels."""
    sky = random_sky(1.1, -0.8, nsource=3, ref_freq=1.284e9, seed=0)
    path = tmp_path_factory.mktemp("three") / "a.ms"
    return small_set(path, sky=sky, nant=3, scan_length=1.0, dump=8.0, rfi=0.0, calibrators=True).path


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm of this machine."""
    folder = tmp_path_factory.mktemp("slurm")
    with running_slurm(folder) as conf, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", conf)
        patch.setenv("PYTHONPATH", str(ROOT))  # as good as installed
        patch.chdir(tmp_path_factory.mktemp("jobs"))  # for what the jobs write
        yield
        assert not jobs(), "a test has left jobs behind"


@pytest.fixture(scope="session")
def cluster():
    """A dask cluster of two workers, as somebody else may have started it."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0) as made:
        yield made


def tree(folder):
    """All that lies in a folder: paths, sizes and times of change; measurement sets aside, whose locks readers touch."""
    found = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith(".ms")]
        for name in folders + files:
            status = os.lstat(os.path.join(root, name))
            found[os.path.relpath(os.path.join(root, name), folder)] = status.st_size, status.st_mtime_ns
    return found


@pytest.fixture
def contents():
    """A function that lists all that lies in a folder, with sizes and times, so that nothing can change unseen."""
    return tree
