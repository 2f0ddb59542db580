"""pfb: distributed wideband deconvolution of radio-interferometric images."""

__version__ = "0.1.0"
