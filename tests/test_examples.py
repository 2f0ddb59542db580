"""Every example runs, on a small problem; so does the notebook, cell by cell."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from pfb.cli.options import read_yaml
from pfb.config import Clean
from pfb.pipeline.reporting import Silent

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
OPTIONS = sorted((ROOT / "examples").glob("*.yaml"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
COMMAND = {"clean": Clean}  # what a YAML file is for, by its name


def load(name):
    """Import a script of the examples."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(path, kind="code"):
    """Sources of a notebook's cells."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def smaller(source, **sizes):
    """Replace the sizes that a cell sets."""
    for name, value in sizes.items():
        source = re.sub(rf"^{name} = [\d.]+", f"{name} = {value}", source, flags=re.MULTILINE)
    return source


def test_clean(tmp_path, monkeypatch, capsys):
    example = load("clean")
    monkeypatch.setattr(example, "NPIX", 160)
    monkeypatch.setattr(example, "NITER", 2)
    found, true = example.main(tmp_path / "made", Silent())
    assert found.shape == true.shape == (3, 4)
    # Two cycles do not get to the end, but to the right places.
    assert (found[:2] > 0.2 * true[:2]).all()
    assert (found > 0).all()
    assert (found < 1.5 * true).all()
    printed = capsys.readouterr().out
    picture = re.search(r"The picture is (.*)", printed)
    assert Path(picture[1]).exists()
    assert len(re.findall(r"of \d\.\d{3}", printed)) == found.size


@pytest.mark.real
def test_hydrogen(tmp_path, real_set, capsys):
    """NGC 5921: two horns, and halves at opposite velocities about the 1480 km/s of the galaxy."""
    disc = load("hydrogen").main(real_set("ngc5921_vla_hi"), tmp_path / "made", Silent())
    assert len(disc.velocity) == 37
    assert disc.north < 1465 < 1510 < disc.south
    middle, outer = disc.flux[15:22], np.concatenate([disc.flux[:6], disc.flux[-6:]])
    assert outer.max() > 1.05 * middle.mean()
    assert "The northern half recedes" in capsys.readouterr().out


def test_every_script_has_a_test():
    assert [path.stem for path in SCRIPTS] == ["clean", "hydrogen"]


@pytest.mark.parametrize("path", OPTIONS, ids=lambda p: p.name)
def test_options_are_known_and_allowed(path):
    config = COMMAND[path.stem]
    given = read_yaml(str(path), config)
    assert given, "no options"
    made = config(output="out", **given)
    assert made.npix == "512"


@pytest.fixture
def no_window():
    """Draw into memory."""
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


@pytest.mark.real
def test_notebook_of_3c273(monkeypatch, capsys, no_window, real_set, tmp_path):
    real_set("3c273_vla_8ghz")  # skips without it
    path = ROOT / "notebooks" / "3c273.ipynb"
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = {}
    for number, source in enumerate(cells(path)):
        exec(compile(smaller(source, NPIX=160, NITER=2), f"{path.name}[{number}]", "exec"), names)
    assert len(plt.get_fignums()) == 3
    assert names["restored"].shape == (160, 160)
    # The sum of model and residual has the core and the knot from the first cycle on.
    assert names["core"] == pytest.approx(29.9, rel=0.1)
    assert np.hypot(names["west"] - 14.0, names["south"] - 15.5) < 1.5
    assert "arcsec West" in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
class TestEveryNotebook:
    def test_outputs_are_stripped(self, path):
        text = path.read_text()
        notebook = json.loads(text)
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert notebook["nbformat"] == 4
        assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
        assert text == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"

    def test_imports_nothing_private(self, path):
        for source in cells(path):
            for node in ast.walk(ast.parse(source)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) else []
                names += [node.attr] if isinstance(node, ast.Attribute) else []
                assert not [name for name in names if name.split(".")[-1].startswith("_")]

    def test_explains_itself(self, path):
        texts = cells(path, "markdown")
        assert texts[0].startswith("# ")
        assert len(texts) >= 5
