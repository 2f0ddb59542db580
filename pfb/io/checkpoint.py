"""Checkpoints of a run: arrays in files of their own, and a manifest that names them and is written last.

A checkpoint is a folder of its own, and is one as soon as the manifest says so, which is replaced in one step: whenever
a run ends, the manifest names complete files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfb.errors import InputError

MANIFEST = "manifest.json"
VERSION = 1


class Checkpoints:
    """The checkpoints of one run; the newest is what a run goes on from.

    Parameters
    ----------
    path : str or Path
        Their folder; it is made when it is first needed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._read: str | None = None

    def exists(self) -> bool:
        """Return whether there is one to go on from."""
        return (self.path / MANIFEST).is_file()

    def read(self) -> dict[str, Any]:
        """Return the manifest, whose files stay until `remove`: what was made of them may have to be made again.

        Raises
        ------
        InputError
            If there is none that can be read, or if files that it names are missing.
        """
        file = self.path / MANIFEST
        remedy = "start anew with --overwrite"
        try:
            manifest: dict[str, Any] = json.loads(file.read_text())
            version, folder, files = manifest["version"], manifest["folder"], manifest["files"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is not the manifest of a checkpoint ({type(error).__name__}); {remedy}") from error
        if version != VERSION:
            raise InputError(f"{self.path} has version {version} of checkpoints but this pfb reads version {VERSION}; {remedy}")
        missing = [name for name in files if not (self.path / folder / name).is_file()]
        if missing:
            raise InputError(f"the checkpoint {self.path} lacks {', '.join(missing)}; {remedy}")
        self._read = folder
        return manifest

    def begin(self) -> Path:
        """Make an empty folder for the arrays of the next checkpoint, which are then written by whoever has them."""
        self.path.mkdir(exist_ok=True)
        there = [int(old.name) for old in self.path.iterdir() if old.is_dir() and old.name.isdecimal()]
        folder = self.path / f"{max(there, default=-1) + 1:06d}"
        folder.mkdir()
        return folder

    def commit(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Make the checkpoint whose arrays are in `folder` the one to go on from, and remove those that are superseded."""
        files = sorted(file.name for file in folder.iterdir())
        text = json.dumps({"version": VERSION, "folder": folder.name, "files": files, **manifest}, indent=1)
        partial = self.path / f"{MANIFEST}.{os.getpid()}"
        with partial.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.path / MANIFEST)
        for old in self.path.iterdir():
            if old.is_dir() and old.name not in (folder.name, self._read):
                shutil.rmtree(old)

    def remove(self) -> None:
        """Remove all of them: the manifest first, so that no half of one is taken for a whole."""
        (self.path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
