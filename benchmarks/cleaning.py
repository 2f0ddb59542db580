"""Compare the CLEAN of `pfb clean` with that of WSClean on the set of `synthetic.py`, and with SARA.

Prints, as Markdown, a line per algorithm: score of the model against the truth, rms of the residual, CPU seconds, and that
rms over the one that WSClean's multiscale leaves, if it is installed; writes the same as JSON. All clean within an automatic
mask of what exceeds 3 times the noise, down to 1 times the noise. Other options of `pfb clean` may follow.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wsclean
from stages import Recorder
from synthetic import OBSERVATION, OPTIONS, Result, configure, printed, run_pfb, run_wsclean, scores, simulate

from pfb.cli.console import Console
from pfb.config.components import ALGORITHMS, CLEAN
from pfb.errors import PfbError
from pfb.io.simulated_set import Simulation
from pfb.pipeline.reporting import Reporter

DEPTH = dict(auto_mask=3.0, auto_threshold=1.0)
"""Of those that CLEAN, as WSClean is run."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options that are not `pfb clean`'s."""
    out = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        usage="%(prog)s [-h] [options below] [options of pfb clean]",
    )  # fmt: skip
    out.add_argument("--folder", type=Path, default=Path(__file__).parent / "out", metavar="DIR", help="where everything goes")
    out.add_argument("--algorithms", default=",".join(CLEAN), metavar="NAME,...", help="default: %(default)s")
    out.add_argument("--nant", type=int, default=OBSERVATION.nant, metavar="N", help="dishes (default: %(default)s)")
    out.add_argument(
        "--scan-length", type=float, default=OBSERVATION.scan_length, metavar="MINUTES", help="default: %(default)s"
    )
    return out


def run(arguments: argparse.Namespace, options: Sequence[str], report: Reporter) -> list[Result]:
    """Image the set with every algorithm, and with WSClean after that."""
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    observation = Simulation(**{**vars(OBSERVATION), "nant": arguments.nant, "scan_length": arguments.scan_length})
    path = str(simulate(folder, observation, report))
    results: list[Result] = []
    for algorithm in arguments.algorithms.split(","):
        given: dict[str, Any] = OPTIONS | (DEPTH if algorithm in CLEAN else {})
        config = configure(["--algorithm", algorithm, *options], str(folder / algorithm), given)
        found, model = run_pfb(path, config, Recorder(report))
        results.append(found._replace(imager=f"pfb {algorithm}"))
    if reason := wsclean.missing():
        report.warning(f"WSClean is left out: {reason}")
    else:
        results.append(run_wsclean(path, str(folder / "wsclean"), config, model, results[0].thermal))
    return results


def table(results: Sequence[Result]) -> str:
    """Return the scores, and every residual over WSClean's."""
    lines = scores(results)
    last = results[-1]
    if last.imager.startswith("pfb"):
        return lines
    ratios = ", ".join(f"{r.imager} {r.residual / last.residual:.3f}" for r in results[:-1])
    return f"{lines}\n\nrms of the residual over that of {last.imager}: {ratios}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    arguments, options = parser().parse_known_args(argv)

    def work() -> str:
        if unknown := set(arguments.algorithms.split(",")) - set(ALGORITHMS):
            raise PfbError(f"--algorithms has {', '.join(sorted(unknown))} but must be of {', '.join(ALGORITHMS)}")
        results = run(arguments, options, Console(quiet="--quiet" in options))
        out = arguments.folder / "cleaning.json"
        out.write_text(json.dumps([r._asdict() | {"score": r.score._asdict()} for r in results], indent=1))
        return f"\n{table(results)}\n\nwritten to {out}"

    return printed("cleaning", work)


if __name__ == "__main__":
    sys.exit(main())
