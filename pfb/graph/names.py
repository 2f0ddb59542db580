"""Key names: the words of the algorithm first, so that the dashboard reads like the paper."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from typing import Any

from pfb.graph.tasks import Key

STAGES = (
    "read", "band", "counts", "weigh", "grid", "psf", "beam", "hessian", "convolution", "precondition", "mask", "mfs",
    "statistics", "cg", "pursue", "model", "slope", "reweight", "extrapolate", "psi-dot", "branch-norm", "l21-norm", "dual",
    "dual-change", "psi-hdot", "grad", "primal", "press", "negative", "positivity", "change", "converged", "objective",
    "subtract", "residual", "variance", "interpolate", "write", "park", "resume",
    "checkpoint", "thumbnail", "iterate", "ascend", "descend", "gate", "pick", "density", "predict", "factor",
    "survey", "seek", "gather", "spread",
)  # fmt: skip
"""Every prefix that a key may have."""


def token(*parts: Any) -> str:
    """Return 32 hexadecimal digits of what identifies a run: paths and parameters, never array contents."""
    return md5(repr(parts).encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Names:
    """Makes the keys of one run, or of one major cycle of it.

    A key is ``(name, *index)``. The name is one of `STAGES`, the number of the iteration if there
    is one, and the token: dask colours and averages by the words before the first digit, and
    groups by the whole name.
    """

    token: str

    def key(self, stage: str, *index: int, iteration: int | None = None) -> Key:
        """Return the key of a stage; `index` counts blocks, the owning one last."""
        if stage not in STAGES:
            raise KeyError(f"stage {stage!r} is not in STAGES")
        step = "" if iteration is None else f"-it{iteration:05d}"
        return (f"{stage}{step}-{self.token}", *index)

    def within(self, *parts: Any) -> Names:
        """Return the names of a part of the run, e.g. of one major cycle."""
        return Names(token(self.token, *parts))


def stage_of(key: tuple[Any, ...]) -> str:
    """Return the stage that a key belongs to; an empty word if its name is not one of ours."""
    words = str(key[0]).split("-")[:-1]
    if words and words[-1].startswith("it") and words[-1][2:].isdigit():
        words.pop()
    return "-".join(words)


def iteration_of(key: tuple[Any, ...]) -> int:
    """Return the number of the iteration that a key belongs to.

    Raises
    ------
    KeyError
        If its name has none.
    """
    words = str(key[0]).split("-")
    if len(words) < 3 or not words[-2].startswith("it") or not words[-2][2:].isdigit():
        raise KeyError(f"{key[0]} does not belong to an iteration")
    return int(words[-2][2:])
