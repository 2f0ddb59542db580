"""Products appear complete or not at all: written beside their final place, then renamed into it.

A process that is killed leaves what it was writing under a hidden name. The name says whose it is,
and the next process that writes the same product on the same machine removes it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import md5
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
        raise InputError(f"{', '.join(existing)} exists already; choose another name, or replace it with --overwrite")
    for folder in sorted({path.parent for path in targets}):
        if not folder.is_dir():
            raise InputError(f"the folder {folder} of {_in(folder, targets)} does not exist; create it or write elsewhere")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"the folder {folder} of {_in(folder, targets)} is not writable; write elsewhere")


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
    _remove_leftovers(final, "new")
    temporary = _beside(final, "new")
    try:
        yield temporary
        require_writable([final], overwrite)
        _rename(temporary, final)
    except BaseException:
        _remove(temporary)
        raise
    # Not earlier: it may have been the only complete product that there was.
    _remove_leftovers(final, "old")


@contextmanager
def scratch(path: str | Path) -> Iterator[Path]:
    """Make a hidden folder beside the product `path` for what only the run needs, and remove it afterwards.

    Yields
    ------
    Path
        An empty folder.
    """
    _remove_leftovers(Path(path), "scratch")
    folder = _beside(Path(path), "scratch")
    folder.mkdir()
    try:
        yield folder
    finally:
        # A worker that has not heard yet that the run is over may still write into it.
        shutil.rmtree(folder, ignore_errors=True)


def _in(folder: Path, targets: list[Path]) -> str:
    return next(path.name for path in targets if path.parent == folder)


def _beside(final: Path, role: str) -> Path:
    # The random part keeps apart what one process stages twice.
    return final.with_name(f".{_machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}-{role}-{final.name}")


@cache
def _machine() -> str:
    """Return digits that stand for this host and, on Linux, its namespace of process ids: each container has its own."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return md5(f"{platform.node()} {namespace}".encode(), usedforsecurity=False).hexdigest()[:8]


def _remove_leftovers(final: Path, role: str) -> None:
    """Remove what dead processes of this machine have left of a product; of others nobody here can tell whether they live."""

    def prefix(role: str) -> str:
        return rf"\.{_machine()}-(\d+)-[0-9a-f]{{8}}-{role}-"

    # What is staged may be staged once more by whoever writes it.
    name = re.compile(f"{prefix(role)}(?:{prefix('[a-z]+')})*{re.escape(final.name)}")
    for path in list(final.parent.iterdir()):
        found = name.fullmatch(path.name)
        if found and not _is_alive(int(found[1])):
            with suppress(OSError):
                _remove(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True


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
