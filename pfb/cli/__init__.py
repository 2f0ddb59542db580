"""The command line: text to config, config to a pipeline, an error to one sentence.

Nothing heavy is imported until a command runs, so that ``pfb --help`` answers at once.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from pfb import __version__
from pfb.cli import options
from pfb.cli.paths import sets_argument
from pfb.config import (
    Check,
    Clean,
    ClusterSubmit,
    Config,
    Convolve,
    Fit,
    Image,
    Info,
    Mask,
    Plan,
    Predict,
    Regrid,
    Restore,
    Simulate,
)
from pfb.errors import PfbError

if TYPE_CHECKING:
    from pfb.cli.console import Console

INTERRUPTED, TERMINATED = 130, 143
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Terminated(BaseException):
    """The process was asked to end, as a batch system does before it kills a job."""


class State:
    """What the handler of errors must know of the command that failed."""

    debug = bool(os.environ.get("PFB_DEBUG"))


@click.group("pfb", context_settings=SETTINGS, invoke_without_command=True)
@click.version_option(__version__, "--version", message="pfb %(version)s")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Image radio-interferometric observations and deconvolve them jointly over frequency."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@commands.group("cluster", invoke_without_command=True)
@click.pass_context
def cluster(ctx: click.Context) -> None:
    """Run pfb as jobs of a batch system."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(State).debug = True


Function = Callable[[Any, Any, "Console"], int | None]


def command(
    config: type[Config], argument: click.Argument, group: click.Group = commands
) -> Callable[[Function], Function]:
    """Make a command of a function that takes the argument, its config and a reporter."""

    def register(function: Function) -> Function:
        def run(**values: Any) -> int | None:
            target = values.pop(str(argument.name))
            made = config(**values)
            from pfb.cli.console import Console

            return function(target, made, Console(quiet=getattr(made, "quiet", False) or getattr(made, "json", False)))

        debug = click.Option(
            ["--debug"], is_flag=True, expose_value=False, is_eager=True, callback=_set_debug,
            help="show the traceback of an error (so does PFB_DEBUG=1 in the environment)",
        )  # fmt: skip
        params = [argument, *options.parameters(config), debug]
        group.add_command(options.Command(function.__name__, config, params=params, callback=run))
        return function

    return register


@command(Image, sets_argument())
def image(sets: tuple[str, ...], config: Image, report: Console) -> None:
    """Run `pfb image`."""
    from pfb.pipeline import image as pipeline

    pipeline.run(sets, config, report)


@command(Clean, sets_argument())
def clean(sets: tuple[str, ...], config: Clean, report: Console) -> None:
    """Run `pfb clean`."""
    from pfb.pipeline import clean as pipeline

    pipeline.run(sets, config, report)


@command(Plan, sets_argument())
def plan(sets: tuple[str, ...], config: Plan, report: Console) -> None:
    """Run `pfb plan`."""
    from pfb.pipeline import plan as pipeline

    for title, columns, rows in pipeline.run(sets, config, report).tables():
        report.table(title, columns, rows)


@command(Check, sets_argument())
def check(sets: tuple[str, ...], config: Check, report: Console) -> int:
    """Run `pfb check`."""
    from pfb.pipeline import check as pipeline

    found = pipeline.run(sets, config, report)
    if config.json:
        click.echo(json.dumps(found.record(), indent=1))
        return found.exit_code
    for title, columns, rows in found.tables():
        report.table(title, columns, rows)
    report.message(found.sentence())
    return found.exit_code


@command(Restore, click.Argument(["dataset"], metavar="DATASET"))
def restore(dataset: str, config: Restore, report: Console) -> None:
    """Run `pfb restore`."""
    from pfb.pipeline import restore as pipeline

    pipeline.run(dataset, config, report)


@command(Convolve, click.Argument(["paths"], nargs=-1, required=True, metavar="FITS|DATASET..."))
def convolve(paths: tuple[str, ...], config: Convolve, report: Console) -> None:
    """Run `pfb convolve`."""
    from pfb.pipeline import convolve as pipeline

    pipeline.run(paths, config, report)


@command(Mask, click.Argument(["path"], metavar="IMAGE"))
def mask(path: str, config: Mask, report: Console) -> None:
    """Run `pfb mask`."""
    from pfb.pipeline import mask as pipeline

    pipeline.run(path, config, report)


@command(Fit, click.Argument(["paths"], nargs=-1, required=True, metavar="DATASET|FITS..."))
def fit(paths: tuple[str, ...], config: Fit, report: Console) -> None:
    """Run `pfb fit`."""
    from pfb.pipeline import fit as pipeline

    pipeline.run(paths, config, report)


@command(Regrid, click.Argument(["paths"], nargs=-1, required=True, metavar="MODEL..."))
def regrid(paths: tuple[str, ...], config: Regrid, report: Console) -> None:
    """Run `pfb regrid`."""
    from pfb.pipeline import regrid as pipeline

    pipeline.run(paths, config, report)


@command(Predict, sets_argument())
def predict(sets: tuple[str, ...], config: Predict, report: Console) -> None:
    """Run `pfb predict`."""
    from pfb.pipeline import predict as pipeline

    pipeline.run(sets, config, report)


@command(Simulate, click.Argument(["path"], metavar="SET"))
def simulate(path: str, config: Simulate, report: Console) -> None:
    """Run `pfb simulate`."""
    from pfb.pipeline import simulate as pipeline

    pipeline.run(path, config, report)


@command(Info, click.Argument(["path"], metavar="SET"))
def info(path: str, config: Info, report: Console) -> None:
    """Run `pfb info`."""
    from pfb.pipeline import info as pipeline

    for title, columns, rows in pipeline.run(path).tables():
        report.table(title, columns, rows)


WORDS = click.Argument(
    ["words"], nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- SET... -o PREFIX [OPTIONS OF pfb clean]"
)


@command(ClusterSubmit, WORDS, group=cluster)
def submit(words: tuple[str, ...], config: ClusterSubmit, report: Console) -> None:
    """Run `pfb cluster submit`."""
    sets, made = parsed("clean", words)
    from pfb.pipeline import submit as pipeline

    pipeline.run(pipeline.Request(words, sets, made), config, report)


def parsed(name: str, words: Sequence[str]) -> tuple[Any, Any]:
    """Read words as the command of that name would; returns its argument and its config."""
    other = cast(options.Command, commands.commands[name])
    with other.make_context(f"pfb {name}", list(words), help_option_names=SETTINGS["help_option_names"]) as ctx:
        values = dict(ctx.params)
    return values.pop(str(other.params[0].name)), other.config(**values)


def _terminate(*_: Any) -> None:
    raise Terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done; 1: the run failed; 2: an option, a file or data cannot be used as asked; 130: interrupted; 143: terminated.
    """
    state = State()
    # Only there may a signal be handled.
    handled = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if handled else None
    try:
        # Without its standalone mode click hands the errors over instead of printing them.
        code = commands.main(args=None if argv is None else list(argv), prog_name="pfb", standalone_mode=False, obj=state)
        return code if isinstance(code, int) else 0
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        # click turns both an interrupt and an unexpected end of a file into Abort.
        cause = error.__cause__ if isinstance(error, click.Abort) and error.__cause__ else error
        if state.debug:
            traceback.print_exception(cause)
        sentence, code = _explain(cause)
        click.echo(f"pfb: {sentence}", err=True)
        return code
    finally:
        if handled:
            signal.signal(signal.SIGTERM, before)


def _explain(error: BaseException) -> tuple[str, int]:
    """Return what to tell the user of an error, and the exit code."""
    if isinstance(error, PfbError):
        return str(error), error.exit_code
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        spellings = "/".join(error.param.opts)
        return f"option {spellings} is missing; give it on the command line or in the --config file", error.exit_code
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        hint = f" (see '{context.command_path} --help')" if context else ""
        return _one_line(error.format_message()) + hint, error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, Terminated):
        return "terminated before its products were written", TERMINATED
    if isinstance(error, MemoryError):
        detail = f" ({_one_line(str(error))})" if str(error) else ""
        return f"not enough memory{detail}; make the image smaller (--npix), or spread the run over more machines", 1
    detail = f": {_one_line(str(error))}" if str(error) else ""
    return f"unexpected {type(error).__name__}{detail} (--debug shows where)", 1


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
