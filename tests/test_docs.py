"""What the documents say is so: the option reference is current, links lead somewhere, named files, options and tests exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest

from pfb import config
from pfb.cli.options import spelling

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "examples", "examples/cluster", "examples/data", "notebooks", "benchmarks", "docker")
DOCUMENTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
COMMANDS = (
    config.Image, config.Clean, config.Plan, config.Check, config.Restore, config.Convolve, config.Mask,
    config.Fit, config.Predict, config.Regrid, config.Simulate, config.Info, config.ClusterSubmit,
)  # fmt: skip


def test_the_option_reference_is_current():
    spec = importlib.util.spec_from_file_location("docs_options", ROOT / "docs" / "options.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "options.md").read_text() == module.render(), "run `make docs`"


def test_every_test_that_is_named_exists():
    """Behaviour that users owe to a test is only as good as the test."""
    lines = [line for line in (ROOT / "docs" / "field-reports.md").read_text().splitlines() if line.startswith("| ")]
    lines = [line for line in lines if not line.startswith("| behaviour |")]
    assert len(lines) > 40
    for line in lines:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)
        assert named, line
        for path, name in named:
            functions = [n.name for n in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(n, ast.FunctionDef)]
            assert name in functions, f"{path}::{name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
class TestEveryDocument:
    def test_links_lead_to_files(self, path):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), target

    def test_files_that_it_names_exist(self, path):
        words = re.findall(r"`((?:pfb|tests|docs|examples|docker|notebooks|benchmarks)/[\w./-]+)`", path.read_text())
        for word in words:
            assert (ROOT / word).exists(), word

    def test_options_that_it_names_exist(self, path):
        known = {spelling(f.name) for c in COMMANDS for f in fields(c)}
        known |= {f"no-{name}" for name in known} | {"config", "debug", "help", "version", "name", "no-name"}
        text = path.read_text()
        spans = re.findall(r"`((?:--|pfb )[^`\n]*)`", text) + re.findall(r"^ *pfb .*", text, re.MULTILINE)
        for name in re.findall(r"(?<![\w-])--([a-z][\w-]*)", " ".join(spans)):
            assert name in known, name
