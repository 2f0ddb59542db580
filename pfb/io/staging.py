"""Products appear complete or not at all: written beside their final place, then renamed into it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pfb.errors import InputError


def require_writable(paths: Iterable[str | Path], overwrite: bool) -> None:
    """Refuse, before any work is done, products that could not be written at its end.

    Parameters
    ----------
    paths : iterable of str or Path
        The files and stores that are going to be written.
    overwrite : bool
        Whether those that exist may be replaced.

    Raises
    ------
    InputError
        If one of them exists and `overwrite` is false (all that exist are named), or if
        its folder does not exist or cannot be written to.
    """
    targets = [Path(path) for path in paths]
    existing = [str(path) for path in targets if os.path.lexists(path)]
    if existing and not overwrite:
        raise InputError(f"{', '.join(existing)} exists already; choose another --output or replace it with --overwrite")
    for folder in sorted({path.parent for path in targets}):
        if not folder.is_dir():
            raise InputError(f"the folder {folder} of {_in(folder, targets)} does not exist; create it or change --output")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"the folder {folder} of {_in(folder, targets)} is not writable; change --output")


@contextmanager
def staged(path: str | Path, overwrite: bool) -> Iterator[Path]:
    """Yield a path beside `path` and rename what was written there once the block ends without an error.

    The product may be a file or a folder. One that is replaced stays as it was until the
    new one is complete; after an error what was written is removed and nothing else changes.

    Parameters
    ----------
    path : str or Path
        The final place. Its folder exists.
    overwrite : bool
        Whether a product there is replaced.

    Yields
    ------
    Path
        A hidden name in the same folder, with the same suffix; nothing is there yet.

    Raises
    ------
    InputError
        If `path` exists and `overwrite` is false, at the start or at the end of the block.
    """
    final = Path(path)
    require_writable([final], overwrite)
    temporary = _beside(final, "new")
    try:
        yield temporary
        require_writable([final], overwrite)
        _rename(temporary, final)
    except BaseException:
        _remove(temporary)
        raise


def _in(folder: Path, targets: list[Path]) -> str:
    return next(path.name for path in targets if path.parent == folder)


def _beside(final: Path, role: str) -> Path:
    # The pid tells whose leftover it is; the random part keeps apart equal pids of several hosts.
    return final.with_name(f".{os.getpid()}-{uuid.uuid4().hex[:8]}-{role}-{final.name}")


def _rename(temporary: Path, final: Path) -> None:
    if not os.path.lexists(final) or not (final.is_dir() or temporary.is_dir()):
        os.replace(temporary, final)
        return
    # No system call replaces a folder that is not empty, so the old one steps aside first.
    aside = _beside(final, "old")
    os.rename(final, aside)
    try:
        os.rename(temporary, final)
    except BaseException:
        os.rename(aside, final)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
