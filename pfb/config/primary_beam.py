"""Options of the primary beam."""

from __future__ import annotations

from dataclasses import dataclass

from pfb.config.declaring import Config, option


@dataclass(frozen=True, kw_only=True)
class PrimaryBeam(Config):
    """What the dishes see of the sky."""

    beam_model: str = option(
        "none", metavar="none|katbeam|FILE",
        help="primary beam: MeerKAT's (katbeam, or katbeam:L, katbeam:UHF), or a power beam from a FITS file or zarr store",
    )
    beam_cutoff: float = option(
        0.1, above=0.0, maximum=1.0, metavar="FRACTION",
        help="corrected images are blank, and models zero, where the beam is lower",
    )
    beam_average: str = option(
        "rotation", choices=("rotation", "azimuth"),
        help="average a beam that is fixed to the dishes over the parallactic angles observed, or over all directions",
    )

    @property
    def has_beam(self) -> bool:
        """Whether there is a primary beam."""
        return self.beam_model != "none"
