"""The rules of the layout (docs/extending.md), checked on every module of the package."""

from __future__ import annotations

import ast
import configparser
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pfb"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 400
GENERATED = {"lattice.py"}  # written by a program, and compared with what it writes

# Layer: what it may import from pfb. There is no default: a new folder fails until it is declared here.
BELOW = {
    "errors": set(),
    "types": set(),
    "config": {"errors"},
    "testing": {"errors", "types"},
    "kernels": {"errors", "types"},
    "operators": {"errors", "types", "kernels"},
    "solvers": {"errors", "types"},
    "graph": {"errors", "types", "kernels", "operators", "solvers"},
    "io": {"errors", "types"},
    "pipeline": {"errors", "types", "config", "kernels", "operators", "solvers", "graph", "io"},
    "cli": {"errors", "config"},
    "__main__": {"errors", "config", "cli"},
}
INSIDE_FUNCTIONS = {"cli": {"pipeline"}}  # what a layer may import from pfb, but only when it runs

# What takes so long to import that a module which every task needs imports it where few do.
LATE = {"scipy", "xarray", "zarr"}

# Layer: what it may not import at all.
DASK = {"dask", "distributed"}
FILES = {"arcae", "pyarrow", "xarray", "zarr", "astropy", "yaml", "matplotlib"}
NUMERICS = {"numba", "ducc0", "pywt"}
INTERFACE = {"click", "rich"}
ARRAYS_ONLY = DASK | FILES | INTERFACE | {"logging"}
BANNED = {
    "kernels": ARRAYS_ONLY,
    "operators": ARRAYS_ONLY,
    "solvers": ARRAYS_ONLY | NUMERICS,
    "graph": (NUMERICS | INTERFACE | FILES) - {"xarray"},
    "io": NUMERICS | INTERFACE,
    "pipeline": NUMERICS | INTERFACE,
}

# Layer: the only packages, beside the standard library, that it may import.
ONLY = {"errors": set(), "types": {"numpy"}, "config": set(), "cli": {"click", "rich", "yaml"}}

DISTRIBUTION = {"pywt": "pywavelets", "yaml": "pyyaml", "erfa": "pyerfa"}


def declared():
    """Names of the distributions that setup.cfg installs with the package."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    lines = parser["options"]["install_requires"].split()
    return {line.split(">")[0].split("=")[0].lower() for line in lines}


def imports(tree):
    """Yield (line, dotted name, whether inside a function) of everything a module imports."""
    inside = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) in inside
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            for alias in node.names:
                yield node.lineno, f"{dots}{node.module or ''}.{alias.name}", id(node) in inside


def own_breach(layer, name, inside):
    """Say what is wrong with importing a name of pfb from a layer, if anything is."""
    part = name.split(".")[1] if "." in name else "__version__"
    if part in (layer, "__version__") or part in BELOW[layer]:
        return None
    if part in INSIDE_FUNCTIONS.get(layer, ()):
        return None if inside else f"{layer} must import {name} inside the function that needs it"
    return f"{layer} must not import {name}"


def foreign_breach(layer, top):
    """Say what is wrong with importing another package from a layer, if anything is."""
    if top in BANNED.get(layer, ()):
        return f"{layer} must not import {top}"
    if top in sys.stdlib_module_names:
        return None
    if layer in ONLY and top not in ONLY[layer]:
        return f"{layer} must not import {top}"
    if DISTRIBUTION.get(top, top) not in declared():
        return f"{top} is not among the dependencies in setup.cfg"
    return None


def breaches(path, package=PACKAGE):
    """List the breaches of the rules in one module."""
    text = path.read_text()
    tree = ast.parse(text)
    layer = path.relative_to(package).parts[0].removesuffix(".py")
    found = []
    for line, name, inside in imports(tree):
        top = name.split(".")[0]
        if name.startswith("."):
            problem = "use absolute imports"
        elif layer == "__init__":
            problem = f"the package itself must not import {name}"
        elif inside and layer != "cli" and top not in LATE:
            problem = f"import {name} at the top of the module"
        else:
            problem = own_breach(layer, name, inside) if top == "pfb" else foreign_breach(layer, top)
        if problem:
            found.append(f"{path.name}:{line}: {problem}")
    if layer != "cli":
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        prints = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
        found += [f"{path.name}:{line}: only the command line prints" for line in prints]
    if (length := len(text.splitlines())) > LONGEST and path.name not in GENERATED:
        found.append(f"{path.name}: {length} lines, more than {LONGEST}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_module_keeps_the_rules(path):
    assert not breaches(path)


def test_every_layer_is_there():
    assert {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"} <= set(BELOW)
    assert {"errors.py", "cli/__init__.py"} <= {str(p.relative_to(PACKAGE)) for p in MODULES}


@pytest.mark.parametrize("pair", [("operators", "solvers"), ("graph", "io")], ids="-".join)
def test_siblings_do_not_know_each_other(pair):
    for a, b in (pair, pair[::-1]):
        assert b not in BELOW[a]


def test_no_layer_knows_a_higher_one():
    for layer, below in BELOW.items():
        for other in below:
            assert BELOW[other] <= below, f"{layer} imports {other} but not all that {other} stands on"
            assert layer not in BELOW[other]


def test_nothing_knows_the_helpers_of_the_tests():
    assert not any("testing" in below for below in BELOW.values())


BREACHES = {
    "upwards": ("kernels/a.py", "from pfb.graph import gridding\n", "kernels must not import pfb.graph"),
    "sibling": ("solvers/a.py", "import pfb.operators.psf\n", "solvers must not import pfb.operators"),
    "from the package": ("io/a.py", "from pfb import graph\n", "io must not import pfb.graph"),
    "testing": ("pipeline/a.py", "from pfb.testing import refuse\n", "pipeline must not import pfb.testing"),
    "dask in a kernel": ("kernels/a.py", "import dask.array as da\n", "kernels must not import dask"),
    "numerics in a graph": ("graph/a.py", "from ducc0 import wgridder\n", "graph must not import ducc0"),
    "files in a graph": ("graph/a.py", "import zarr\n", "graph must not import zarr"),
    "click in a pipeline": ("pipeline/a.py", "import click\n", "pipeline must not import click"),
    "numpy in the config": ("config.py", "import numpy as np\n", "config must not import numpy"),
    "eager pipeline": ("cli/a.py", "from pfb.pipeline import clean\n", "inside the function that needs it"),
    "numpy in the command line": ("cli/a.py", "def f():\n    import numpy\n", "cli must not import numpy"),
    "hidden import": ("graph/a.py", "def f():\n    import dask\n", "at the top of the module"),
    "relative": ("io/a.py", "from .schema import names\n", "use absolute imports"),
    "undeclared": ("io/a.py", "import daskms\n", "not among the dependencies"),
    "print": ("solvers/a.py", "def f():\n    print('x')\n", "only the command line prints"),
    "long": ("solvers/a.py", "x = 1\n" * 401, "401 lines"),
    "package": ("__init__.py", "import os\n", "the package itself must not import os"),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=list(BREACHES))
def test_a_breach_is_found(breach, tmp_path):
    name, text, problem = breach
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    found = breaches(path, tmp_path)
    assert len(found) == 1
    assert problem in found[0]


def test_an_undeclared_layer_fails(tmp_path):
    path = tmp_path / "utils" / "misc.py"
    path.parent.mkdir()
    path.write_text("from pfb.errors import PfbError\n")
    with pytest.raises(KeyError, match="utils"):
        breaches(path, tmp_path)


def test_what_is_allowed_passes(tmp_path):
    path = tmp_path / "cli" / "a.py"
    path.parent.mkdir()
    path.write_text("import os\nimport click\nfrom pfb import __version__\n\ndef f():\n    from pfb.pipeline import clean\n")
    assert not breaches(path, tmp_path)
