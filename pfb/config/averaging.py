"""Options of what is done to visibilities between the set and the grid."""

from __future__ import annotations

from dataclasses import dataclass

from pfb.config.declaring import Config, option


@dataclass(frozen=True, kw_only=True)
class Averaging(Config):
    """How visibilities are averaged, and where they are kept."""

    average_time: float | None = option(
        None, above=0.0, metavar="SECONDS", help="average the time stamps of such intervals; with --bda, at most"
    )
    average_chan: str | None = option(
        None, metavar="NUMBER|WIDTH",
        help="average so many channels, or those of a width such as 2MHz, within each band; with --bda, at most",
    )
    bda: bool = option(
        False, help="average every baseline, in time and channels, as far as --decorrelation allows at the corners of the image"
    )
    decorrelation: float = option(
        0.99, above=0.0, maximum=0.999999, metavar="FRACTION",
        help="least part of its amplitude that averaging leaves of a source there",
    )
    cache: str | None = option(
        None, metavar="FOLDER",
        help="keep visibilities as they are imaged in this folder, and take from there what an earlier run made alike",
    )
    stream: str = option(
        "auto", choices=("auto", "always", "never"),
        help="read visibilities from disk whenever they are needed; auto: if they do not fit the memory",
    )
