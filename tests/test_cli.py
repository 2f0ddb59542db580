"""The command line: options from fields, YAML, exit codes, and what is not imported."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from dataclasses import fields
from pathlib import Path

import click
import pytest
import yaml

import pfb.pipeline
from pfb import __version__, cli, config
from pfb.cli import options
from pfb.cli.console import Console
from pfb.errors import InputError, PfbError

CONFIGS = {
    "image": config.Image,
    "clean": config.Clean,
    "plan": config.Plan,
    "check": config.Check,
    "restore": config.Restore,
    "convolve": config.Convolve,
    "mask": config.Mask,
    "fit": config.Fit,
    "predict": config.Predict,
    "regrid": config.Regrid,
    "simulate": config.Simulate,
    "info": config.Info,
    "cluster submit": config.ClusterSubmit,
}
JOB = ["--template", "slurm", "--cores", "4", "--walltime", "1:00:00"]
NOT_FIELDS = {"config", "debug", "help"}


class Calls(list):
    """What the stand-in of a pipeline was called with."""

    error: BaseException | None = None
    result: object = None


def module_of(name):
    """The module of a command: named as its last word."""
    return name.split()[-1]


@pytest.fixture
def pipeline(monkeypatch):
    """Replace the pipeline of every command by a stand-in that notes its arguments."""
    calls = Calls()

    def run(*arguments):
        calls.append(arguments)
        if calls.error is not None:
            raise calls.error
        return calls.result

    for name in map(module_of, CONFIGS):
        module = types.ModuleType(f"pfb.pipeline.{name}")
        module.run = run
        module.Request = lambda *given: given
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(pfb.pipeline, name, module, raising=False)
    return calls


@pytest.fixture
def yaml_file(tmp_path):
    def write(text):
        path = tmp_path / "options.yaml"
        path.write_text(text)
        return str(path)

    return write


def one_sentence(capsys):
    """Return what went to stderr, which must be one line, with nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pfb: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


class TestOptions:
    @pytest.mark.parametrize("name", CONFIGS)
    def test_every_listed_option_is_a_field_and_every_field_is_listed(self, name, capsys):
        assert cli.main([*name.split(), "--help"]) == 0
        listed = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", capsys.readouterr().out, re.MULTILINE))
        assert listed - NOT_FIELDS == {options.spelling(f.name) for f in fields(CONFIGS[name])}

    def test_every_command_is_listed(self, capsys):
        assert cli.main([]) == 0
        assert cli.main(["--help"]) == 0
        first, second = capsys.readouterr().out.split("Usage:")[1:]
        assert first == second
        assert set(cli.commands.commands) == {name.split()[0] for name in CONFIGS}
        assert all(f"  {name.split()[0]} " in first for name in CONFIGS)
        assert cli.main(["cluster"]) == 0
        assert "  submit " in capsys.readouterr().out

    @pytest.mark.parametrize(("name", "made"), CONFIGS.items())
    def test_the_defaults_are_those_of_the_config(self, name, made, pipeline):
        pipeline.result = types.SimpleNamespace(tables=list, sentence=str, exit_code=0)
        out = ["-o", "out"] if name in ("image", "clean", "regrid") else []
        if name == "cluster submit":
            assert cli.main([*name.split(), *JOB, "--", "thing", "-o", "out"]) == 0
            assert pipeline[0][1] == made(template="slurm", cores=4, walltime="1:00:00")
            return
        out += ["--model", "a.zarr"] if name == "predict" else []
        assert cli.main([name, "thing", *out]) == 0
        (call,) = pipeline
        if name == "info":
            assert call == ("thing",)
            return
        target, given, report = call
        several = ("image", "clean", "plan", "check", "fit", "predict", "regrid", "convolve")
        assert target == (("thing",) if name in several else "thing")
        needed = {"model": ("a.zarr",)} if name == "predict" else {"output": "out"} if out else {}
        assert given == made(**needed)
        assert isinstance(report, Console)

    def test_help_says_default_range_choices_and_metavar(self, capsys):
        cli.main(["clean", "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert "--robust FLOAT Briggs' parameter: -2 is nearly uniform, 2 nearly natural [default: 0; -2 to 2]" in text
        assert "--weighting [natural|uniform|briggs] imaging weights [default: briggs]" in text
        assert "--cell ARCSEC" in text
        assert "[above 0]" in text
        assert "-o, --output PREFIX" in text
        assert "[required]" in text
        assert "--wgridding / --no-wgridding correct for the w-term [default: on]" in text

    def test_values_get_the_types_of_the_fields(self, pipeline):
        words = "a.ms b.ms --output p --nband 8 --robust -0.5 --npix 512,256 --no-wgridding --overwrite --field 1"
        assert cli.main(["clean", *words.split()]) == 0
        sets, given, _ = pipeline[0]
        assert sets == ("a.ms", "b.ms")
        assert (given.nband, given.robust, given.npix, given.field) == (8, -0.5, "512,256", "1")
        assert given.wgridding is False
        assert given.overwrite is True

    def test_the_words_of_another_command_are_read_as_it_would(self, pipeline):
        words = ["a.ms", "b.ms", "-o", "out", "--nband", "3", "--no-wgridding"]
        assert cli.main(["cluster", "submit", *JOB, "--extra", "-x", "--extra", "--y=1", "--", *words]) == 0
        request, given, _ = pipeline[0]
        assert request == (tuple(words), ("a.ms", "b.ms"), config.Clean(output="out", nband=3, wgridding=False))
        assert given.extra == ("-x", "--y=1")

    def test_version(self, capsys):
        assert cli.main(["--version"]) == 0
        assert capsys.readouterr().out == f"pfb {__version__}\n"


class TestYaml:
    def test_fills_what_the_command_line_leaves(self, yaml_file, pipeline):
        path = yaml_file("output: here\nnband: 2\nrobust: 1.5\npsf-oversize: 2\ncg_tol: 1e-4\n")
        assert cli.main(["clean", "a.ms", "--config", path, "--nband", "6"]) == 0
        given = pipeline[0][1]
        assert given == config.Clean(output="here", nband=6, robust=1.5, psf_oversize=2.0, cg_tol=1e-4)

    @pytest.mark.parametrize(
        ("text", "name", "value"),
        [
            ("field: 1", "field", "1"),
            ("bases: [self, db2]", "bases", "self,db2"),
            ("npix: [512, 256]", "npix", "512,256"),
            ("chan: 10~46", "chan", "10~46"),
            ("beam: 10:20", "beam", "10:20"),
            ("start: 2024-06-10T06:00:00", "start", "2024-06-10T06:00:00"),
            ("epsilon: 1e-4", "epsilon", 1e-4),
            ("niter: '7'", "niter", 7),
            ("overwrite: yes", "overwrite", True),
            ("wgridding: false", "wgridding", False),
            ("no-wgridding: true", "wgridding", False),
            ("no_overwrite: false", "overwrite", True),
            ("l1-reweight-from: -1", "l1_reweight_from", -1),
            ("positivity: none", "positivity", "none"),
        ],
    )
    def test_reads_values_as_the_command_line_does(self, text, name, value, yaml_file):
        known = next(c for c in CONFIGS.values() if name in {f.name for f in fields(c)} and c is not config.Image)
        read = options.read_yaml(yaml_file(text), known)
        assert read == {name: value}
        assert type(read[name]) is type(value)

    @pytest.mark.parametrize("text", ["", "# nothing\n", "cell:\n", "cell: null\n", "cell: ~\n"])
    def test_empty_values_leave_the_defaults(self, text, yaml_file):
        assert options.read_yaml(yaml_file(text), config.Clean) == {}

    def test_the_command_line_overrules_a_switch_both_ways(self, yaml_file, pipeline):
        path = yaml_file("output: x\noverwrite: true\nwgridding: false\n")
        cli.main(["clean", "a.ms", "--config", path, "--no-overwrite", "--wgridding"])
        given = pipeline[0][1]
        assert (given.overwrite, given.wgridding) == (False, True)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("nbands: 4", "line 1: unknown option 'nbands'; did you mean nband?"),
            ("output: x\nno-wgriding: true", "line 2: unknown option 'no-wgriding'; did you mean no-wgridding"),
            ("zzz: 4", "unknown option 'zzz'; see 'pfb clean --help'"),
            ("config: other.yaml", "unknown option 'config'"),
            ("nband: many", "line 1: option 'nband' is 'many' but must be a whole number"),
            ("nband: 2.5", "option 'nband' is '2.5' but must be a whole number"),
            ("nband: [1, 2]", "option 'nband' is a list but must be a whole number"),
            ("robust: low", "option 'robust' is 'low' but must be a number"),
            ("overwrite: maybe", "option 'overwrite' is 'maybe' but must be true or false"),
            ("weighting: robust", "option 'weighting' is 'robust' but must be one of natural, uniform, briggs"),
            ("output: {a: b}", "line 1: an option is a word, a number or a list of them"),
            ("bases: [[self], db1]", "line 1: an option is a word, a number or a list of them"),
            ("psf-oversize: 2\npsf_oversize: 2", "line 2: option 'psf_oversize' is given twice"),
            ("wgridding: true\nno-wgridding: true", "line 2: option 'no-wgridding' is given twice"),
            ("- nband\n- 4", "must hold options as 'name: value' lines"),
            ("nband", "must hold options as 'name: value' lines"),
            ("? [nband]\n: 4", "line 1: an option is a word"),
            ("prior: [l21]", "option 'prior' is a list but must be one of l21, mean21"),
            ("nband: {a: 1}", "line 1: an option is a word, a number or a list of them, without more structure"),
            ("nband: 4\ncluster-options: [a]", "line 2: 'cluster-options' must be a section of 'name: value' lines below it"),
            ("cluster-options: text", "must be a section of 'name: value' lines"),
            ("cluster: aws", "line 1: option 'cluster' is 'aws' but must be one of local, ssh, slurm, pbs, kubernetes"),
            ("nband: [1", "is not a YAML file"),
            ("nband: -3", "--nband is -3 but must be at least 1"),
        ],
    )
    def test_a_mistake_is_named_in_one_sentence(self, text, message, yaml_file, pipeline, capsys):
        assert cli.main(["clean", "a.ms", "-o", "out", "--config", yaml_file(text)]) == 2
        assert message in one_sentence(capsys)
        assert not pipeline

    def test_a_section_is_what_would_be_typed(self, yaml_file, pipeline):
        """The options of a cluster's class, which only that class knows."""
        path = yaml_file("cluster: slurm\ncluster-options:\n  walltime: 12:00:00\n  directives: [-x, --y=1]\nnband: 3\n")
        cli.main(["clean", "a.ms", "-o", "x", "--config", path])
        typed = "{walltime: 12:00:00, directives: [-x, --y=1]}"
        cli.main(["clean", "a.ms", "-o", "x", "--config", path, "--cluster-options", typed])
        (by_file, by_hand) = (call[1] for call in pipeline)
        assert (by_file.cluster, by_file.nband) == ("slurm", 3)
        assert yaml.load(by_file.cluster_options, yaml.BaseLoader) == {"walltime": "12:00:00", "directives": ["-x", "--y=1"]}
        assert yaml.safe_load(by_file.cluster_options) == yaml.safe_load(by_hand.cluster_options)

    @pytest.mark.parametrize("text", ["cluster_options:", "cluster-options: null"])
    def test_an_empty_section_is_none(self, text, yaml_file):
        assert options.read_yaml(yaml_file(text), config.Clean) == {}

    def test_a_missing_file_is_named(self, capsys):
        assert cli.main(["clean", "a.ms", "-o", "out", "--config", "nowhere.yaml"]) == 2
        assert "cannot read the configuration file nowhere.yaml: No such file" in one_sentence(capsys)

    def test_a_file_that_is_not_text(self, tmp_path, capsys):
        path = tmp_path / "binary.yaml"
        path.write_bytes(b"\xff\xfe\x00\x01")
        assert cli.main(["clean", "a.ms", "-o", "out", "--config", str(path)]) == 2
        assert "is not a YAML file" in one_sentence(capsys)

    @pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "examples").glob("*.yaml")), ids=lambda p: p.name)
    def test_the_examples_are_accepted(self, path):
        config.Clean(**{"output": "x", **options.read_yaml(str(path), config.Clean)})


class TestExitCodes:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("clean", "Missing argument 'SET...' (see 'pfb clean --help')"),
            ("clean a.ms", "option -o/--output is missing; give it on the command line or in the --config file"),
            ("clean a.ms -o x --nbnd 3", "--nband"),
            ("clean a.ms -o x --nband many", "'--nband': 'many' is not a valid integer"),
            ("clean a.ms -o x --robust 4", "--robust is 4.0 but must be at most 2"),
            ("clean a.ms -o x --cell 0", "--cell is 0.0 but must be greater than 0"),
            ("clean a.ms -o x --cell nan", "--cell is nan but must be a finite number"),
            ("clean a.ms -o x --prior l1", "'--prior': 'l1' is not one of 'l21', 'mean21'"),
            ("clan", "No such command 'clan'"),
            ("restore a.zarr b.zarr", "unexpected extra argument"),
            ("restore", "Missing argument 'DATASET'"),
            ("cluster submt", "No such command 'submt'"),
            ("cluster submit a.ms", "option --template is missing"),
            ("cluster submit --template slurm --cores 4 --walltime 1:00:00 -- a.ms -o x --nbnd 4", "(see 'pfb clean --help')"),
        ],
    )
    def test_bad_usage_is_two(self, words, message, pipeline, capsys):
        assert cli.main(words.split()) == 2
        assert message in one_sentence(capsys)
        assert not pipeline

    @pytest.mark.parametrize(
        ("error", "code", "message"),
        [
            (InputError("a.ms has no column X; choose one"), 2, "pfb: a.ms has no column X; choose one\n"),
            (PfbError("the cycle diverged"), 1, "pfb: the cycle diverged\n"),
            (MemoryError(), 1, "not enough memory; make the image smaller (--npix)"),
            (MemoryError("Unable to allocate 9 TiB"), 1, "not enough memory (Unable to allocate 9 TiB)"),
            (RuntimeError("first\n  second."), 1, "unexpected RuntimeError: first second (--debug shows where)"),
            (ZeroDivisionError(), 1, "unexpected ZeroDivisionError (--debug shows where)"),
            (EOFError("short file"), 1, "unexpected EOFError: short file"),
            (KeyboardInterrupt(), 130, "pfb: interrupted\n"),
        ],
        ids=lambda x: type(x).__name__ if isinstance(x, BaseException) else "",
    )
    def test_a_failed_run(self, error, code, message, pipeline, capsys, monkeypatch):
        monkeypatch.setattr(cli.State, "debug", False)
        pipeline.error = error
        assert cli.main(["clean", "a.ms", "-o", "x"]) == code
        # click ends the line at which an interrupt was typed
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert len(err.strip().splitlines()) == 1

    def test_debug_shows_the_traceback(self, pipeline, capsys):
        pipeline.error = RuntimeError("inside")
        assert cli.main(["clean", "a.ms", "-o", "x", "--debug"]) == 1
        err = capsys.readouterr().err
        assert "Traceback" in err
        assert "in run" in err
        assert err.endswith("pfb: unexpected RuntimeError: inside (--debug shows where)\n")

    def test_debug_of_one_run_does_not_stay(self, pipeline, capsys, monkeypatch):
        monkeypatch.setattr(cli.State, "debug", False)
        pipeline.error = RuntimeError("inside")
        cli.main(["clean", "a.ms", "-o", "x", "--debug"])
        capsys.readouterr()
        cli.main(["clean", "a.ms", "-o", "x"])
        assert "Traceback" not in capsys.readouterr().err

    def test_the_environment_switches_debugging_on(self):
        code = "import sys\nfrom pfb import cli\nsys.exit(0 if cli.State.debug else 3)"
        run = subprocess.run([sys.executable, "-c", code], env={"PFB_DEBUG": "1"}, cwd=Path(__file__).parents[1], check=False)
        assert run.returncode == 0

    def test_info_prints_its_tables(self, pipeline, capsys):
        rows = [(0, "3C 273", 1.5), (1, "x", None)]
        pipeline.result = types.SimpleNamespace(tables=lambda: [("Fields", ["id", "name", "deg"], rows)])
        assert cli.main(["info", "a.ms"]) == 0
        assert capsys.readouterr().out == "Fields\n  id  name    deg\n   0  3C 273  1.5\n   1  x\n\n"


def test_the_package_can_be_run():
    run = subprocess.run([sys.executable, "-m", "pfb", "--version"], capture_output=True, text=True, check=True)
    assert __version__ in run.stdout


class TestImports:
    HEAVY = ("numpy", "dask", "distributed", "rich", "yaml", "numba", "astropy", "xarray", "zarr", "arcae", "matplotlib")

    @pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["clean", "--help"], ["cluster"]], ids=" ".join)
    def test_help_imports_nothing_heavy(self, words):
        code = (
            "import sys\nfrom pfb import cli\n"
            f"assert cli.main({words!r}) == 0\n"
            f"loaded = sorted(set({self.HEAVY!r}) & set(sys.modules))\n"
            "assert not loaded, loaded\n"
            "assert not [m for m in sys.modules if m.startswith('pfb.pipeline')]"
        )
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True, capture_output=True)


def test_click_errors_stay_known():
    """The handler names what is missing by these attributes."""
    error = click.MissingParameter(param=click.Option(["-o", "--output"]))
    assert error.exit_code == 2
    assert error.param.opts == ["-o", "--output"]
