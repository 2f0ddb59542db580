"""The columns of a simulated observation: model, noise, gains, interference, flags, weights and deliberate defects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfb.io.earth import parallactic_angle
from pfb.io.primary_beam import katbeam_receiver, katbeam_response
from pfb.io.simulated_array import antenna_uvw
from pfb.io.simulated_layout import Block, Layout, SimulatedWindow
from pfb.io.simulated_visibilities import predict
from pfb.io.sky import direction_cosines
from pfb.types import Complex, Real

Columns = dict[str, NDArray[Any]]

_RFI = 30.0
"""Added to samples with interference, in Jy."""


def draw_gains(layout: Layout, rng: np.random.Generator) -> list[Complex]:
    """Draw the (antenna, chan, 2) gains of every window."""
    nant, s = len(layout.dishes), layout.simulation
    common = rng.standard_normal((nant, 1, 2)) + 1j * rng.standard_normal((nant, 1, 2))
    return [np.exp(s.gain_error * (common + 0.1 * rng.standard_normal((nant, len(w.freq), 2)))) for w in layout.windows]


def make_block(layout: Layout, block: Block, gains: Complex, rng: np.random.Generator) -> Columns:
    """Make the columns of a block, (time * baseline, ...) in the order of time, then baseline."""
    field, window = layout.fields[block.field], layout.windows[block.window]
    antennas = antenna_uvw(layout.itrf, block.times, field.ra, field.dec)
    uvw = (antennas[:, layout.antenna1] - antennas[:, layout.antenna2]).reshape(-1, 3)
    defects = layout.simulation.defects
    model = _model(layout, block, uvw)
    corrected = model + _noise(layout, model.shape, rng)
    data = (corrected * _corruption(layout, block, gains)).astype(np.complex64)
    columns: Columns = _small_columns(layout, block, window)
    columns |= {"UVW": uvw, "DATA": data, "CORRECTED_DATA": corrected, "FLAG": _flags(layout, block, model.shape, rng)}
    columns |= _weights(layout, model.shape, rng)
    if defects.model_data:
        columns["MODEL_DATA"] = np.zeros((len(uvw), len(window.freq) + 1, len(defects.feeds)), np.complex64)
    _spoil(layout, columns)
    if defects.unflagged_rfi:
        _disturb(columns, defects.unflagged_rfi, rng)
    _misplace(layout, columns)
    return {name: values for name, values in columns.items() if name not in defects.empty_columns}


def _model(layout: Layout, block: Block, uvw: Real) -> Complex:
    """Predict the sky of a block; its beam, if there is one, is that of the middle of every integration."""
    field, window, defects = layout.fields[block.field], layout.windows[block.window], layout.simulation.defects
    centre = field.ra, field.dec
    if layout.simulation.beam_model == "none":
        return predict(uvw, window.freq, field.sky, centre, defects.feeds, defects.receptor_angle)
    receiver = katbeam_receiver(f"katbeam:{layout.simulation.band}", float(window.freq.min()), float(window.freq.max()))
    places = np.array([direction_cosines(c.ra, c.dec, *centre) for c in field.sky])
    sine = np.hypot(*places.T[:2])
    l, m, _ = places.T * np.divide(np.arcsin(sine), sine, out=np.ones_like(sine), where=sine > 0)
    parts = []
    angles = parallactic_angle(block.times, layout.itrf.mean(axis=0)[None], *centre)[:, 0]
    for angle, rows in zip(angles, np.split(uvw, len(block.times)), strict=True):
        right, up = -l * np.cos(angle) + m * np.sin(angle), l * np.sin(angle) + m * np.cos(angle)
        power = np.stack([katbeam_response(receiver, right, up, nu) for nu in window.freq], axis=1)
        parts.append(predict(rows, window.freq, field.sky, centre, defects.feeds, defects.receptor_angle, power))
    return np.concatenate(parts)


def _small_columns(layout: Layout, block: Block, window: SimulatedWindow) -> Columns:
    baselines, times = len(layout.antenna1), len(block.times)
    rows = baselines * times
    dump = np.full(rows, layout.simulation.dump)
    stamps = np.repeat(block.times, baselines)
    columns: Columns = {"TIME": stamps, "TIME_CENTROID": stamps, "INTERVAL": dump, "EXPOSURE": dump}
    columns |= {"ANTENNA1": np.tile(layout.antenna1, times), "ANTENNA2": np.tile(layout.antenna2, times)}
    zeros = ("FEED1", "FEED2", "ARRAY_ID", "OBSERVATION_ID", "PROCESSOR_ID")
    numbers = {"DATA_DESC_ID": window.data_desc_id, "FIELD_ID": block.field, "SCAN_NUMBER": block.scan, "STATE_ID": block.field}
    return columns | {name: np.full(rows, value, np.int32) for name, value in (dict.fromkeys(zeros, 0) | numbers).items()}


def _noise(layout: Layout, shape: tuple[int, ...], rng: np.random.Generator) -> Complex:
    parts = rng.standard_normal((2, *shape), np.float32) * np.float32(layout.noise)
    noise: Complex = parts[0] + 1j * parts[1]
    return noise


def _corruption(layout: Layout, block: Block, gains: Complex) -> Complex:
    """Return the (row, chan, corr) product of the gains of a baseline's two antennas."""
    pairs = [divmod((number - 1) % 4, 2) for number in layout.simulation.defects.feeds]
    first, second = gains[layout.antenna1], gains[layout.antenna2].conj()
    product: Complex = np.stack([first[..., p] * second[..., q] for p, q in pairs], axis=-1)
    return np.tile(product, (len(block.times), 1, 1))


def _flags(layout: Layout, block: Block, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.bool_]:
    rows, channels, _ = shape
    defects, rfi, times = layout.simulation.defects, layout.simulation.rfi, len(block.times)
    # Half of the interference is seen by all baselines at once, half by one.
    flag = np.repeat(rng.random((times, channels)) < rfi / 2, rows // times, axis=0) | (rng.random((rows, channels)) < rfi / 2)
    # A receiver does not reach the edges of its band; windows of a few channels would not survive their loss.
    if channels >= 8:
        first, last = (-1, 0) if defects.descending else (0, -1)
        flag[:, first] = True
        flag[:, last] |= block.window == len(layout.windows) - 1
    flag[:, list(defects.flagged_channels)] = True
    flag |= defects.all_flagged or block.window in defects.flagged_windows
    every = np.repeat(flag[..., None], shape[2], axis=2)
    every[..., list(defects.flagged_correlations)] = True
    return every


def _weights(layout: Layout, shape: tuple[int, ...], rng: np.random.Generator) -> Columns:
    defects = layout.simulation.defects
    spectrum = (rng.uniform(0.8, 1.2, shape) / (layout.noise**2 or 1.0)).astype(np.float32)
    mean = spectrum.mean(axis=1)
    spectrum *= np.float32(defects.weight_factor)
    columns = {"WEIGHT": mean * np.float32(defects.weight_factor), "SIGMA": 1 / np.sqrt(mean), "WEIGHT_SPECTRUM": spectrum}
    if defects.weight == "zero":
        columns["WEIGHT"] = np.zeros_like(mean)
    if defects.weight_spectrum in ("zero", "one"):
        columns["WEIGHT_SPECTRUM"][:] = defects.weight_spectrum == "one"
    if defects.weight_spectrum == "negative":
        columns["WEIGHT_SPECTRUM"][::4] *= -1
    columns["WEIGHT_SPECTRUM"][..., list(defects.infinite_weight)] = np.inf
    return columns


def _spoil(layout: Layout, columns: Columns) -> None:
    """Put into the samples what nobody must use."""
    defects, flag = layout.simulation.defects, columns["FLAG"]
    flag[np.hypot(columns["UVW"][:, 0], columns["UVW"][:, 1]) < defects.flagged_below] = True
    columns["FLAG_ROW"] = np.asarray(flag.all(axis=(1, 2)))
    visibilities = (columns["DATA"], columns["CORRECTED_DATA"])
    for vis in visibilities:
        vis[flag] = np.nan if defects.nan_in_flagged else vis[flag] + _RFI
        vis[..., list(defects.infinite_weight)] = 0
        # The total power that an antenna correlates with itself.
        vis[columns["ANTENNA1"] == columns["ANTENNA2"]] += layout.simulation.sefd
    if defects.nan_unflagged:
        for vis in visibilities:
            vis[::7], vis[3::7] = np.nan, np.inf
    if defects.flagged_rows:
        columns["FLAG_ROW"][::3] = True
        for vis in visibilities:
            vis[::3] += _RFI
    for name in defects.zero_columns:
        columns[name][:] = 0


def _disturb(columns: Columns, fraction: float, rng: np.random.Generator) -> None:
    """Add interference of random phase to samples that are not flagged."""
    rows, channels, _ = columns["DATA"].shape
    hit = (rng.random((rows, channels)) < fraction * (np.arange(channels) < -(-channels // 4)))[..., None]
    interference = np.where(hit, _RFI * np.exp(2j * np.pi * rng.random((rows, channels, 1))), 0).astype(np.complex64)
    for vis in (columns["DATA"], columns["CORRECTED_DATA"]):
        vis += np.where(columns["FLAG"], 0, interference)


def _misplace(layout: Layout, columns: Columns) -> None:
    """Spoil what says when and where a row was observed."""
    defects = layout.simulation.defects
    columns["UVW"] *= defects.uvw_factor
    for name in ("TIME", "TIME_CENTROID"):
        columns[name] = columns[name] + defects.time_shift
    if defects.nan_uvw:
        columns["UVW"][::5] = np.nan
    if defects.duplicated_rows:
        repeats = np.arange(8, len(columns["UVW"]), 9)
        for values in columns.values():
            values[repeats] = values[repeats - 1]
