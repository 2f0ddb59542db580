"""Sums of columns, standard deviations as weights, and which column is taken by default."""

from __future__ import annotations

import arcae
import numpy as np
import pytest
from casacore import tables

from pfb.errors import InputError
from pfb.io.cells import to_weights
from pfb.io.expression import parse_terms
from pfb.io.measurement_set import Selection, release, select
from tests.observations import change, read_window, small_set


def add_column(path, name, values):
    """Add a column with a cell of these values in every row."""
    release()
    kind = "complex" if np.iscomplexobj(values[0]) else "float"
    with tables.table(path, readonly=False, ack=False) as t:
        t.addcols(tables.maketabdesc(tables.makearrcoldesc(name, 0, ndim=values[0].ndim, valuetype=kind)))
        for row, value in enumerate(values):
            t.putcell(name, row, value)


def remove_columns(path, *names):
    release()
    with tables.table(path, readonly=False, ack=False) as t:
        t.removecols([n for n in names if n in t.colnames()])


def column(path, name):
    with arcae.table(path) as table:
        return table.getcol(name)


@pytest.fixture
def made(tmp_path):
    return small_set(tmp_path / "a.ms", nant=5, gain_error=0.1, nan_in_flagged=True)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("DATA", [(1, "DATA")]),
        ("CORRECTED_DATA-MODEL_DATA", [(1, "CORRECTED_DATA"), (-1, "MODEL_DATA")]),
        (" - A + 2.5e-1*B - C * 3 ", [(-1, "A"), (0.25, "B"), (-3, "C")]),
    ],
)
def test_sums_are_read(text, terms):
    assert list(parse_terms(text)) == terms


@pytest.mark.parametrize(
    "text", ["", "DATA-", "DATA MODEL_DATA", "DATA--MODEL", "DATA*MODEL", "2*3", "DATA/2", "(A-B)", "DATA-MODEL;"]
)
def test_what_is_no_sum_is_refused(text):
    with pytest.raises(InputError, match=r"--data-column: cannot read .*; write a column, or a sum or difference such as"):
        parse_terms(text)


@pytest.mark.parametrize("text", ["CORRECTED_DATA-MODEL_DATA", "MODEL_DATA - 0.5*DATA + CORRECTED_DATA*2"])
def test_sums_are_those_of_the_cells(made, rng, text):
    shape = column(made.path, "DATA").shape
    model = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    flag = column(made.path, "FLAG").astype(bool)
    model[flag] = np.nan
    unflagged = np.argwhere(~flag)[17]
    model[tuple(unflagged)] = np.nan
    add_column(made.path, "MODEL_DATA", model)
    columns = {name: column(made.path, name).astype(complex) for name in ("DATA", "CORRECTED_DATA", "MODEL_DATA")}
    wanted = eval(text, {}, columns)
    plain = read_window(select([made.path], Selection()).windows[0])[2] > 0
    (w,) = select([made.path], Selection(data_column=text, chan="2~6")).windows
    _, vis, weight = read_window(w, rows=17)
    lost = plain.copy()
    lost[tuple(unflagged)] = False
    np.testing.assert_array_equal(weight > 0, lost[:, 2:7])
    np.testing.assert_allclose(vis[weight > 0], wanted[:, 2:7][weight > 0], rtol=3e-7, atol=1e-6)
    assert not vis[weight == 0].any()
    assert vis.dtype == np.complex64
    assert w.row_chunk > w.rows


def test_a_sum_of_a_column_that_does_not_exist(made):
    with pytest.raises(InputError, match=r"has no visibility column MODEL_DATA \(it has CORRECTED_DATA, DATA\); choose one with"):
        select([made.path], Selection(data_column="CORRECTED_DATA-MODEL_DATA"))


@pytest.mark.parametrize("spectrum", [False, True])
def test_standard_deviations_as_weights(made, spectrum, rng):
    shape = column(made.path, "FLAG").shape
    sigma = rng.uniform(0.5, 2, shape if spectrum else shape[::2]).astype(np.float32)
    sigma[0], sigma[1], sigma[2], sigma[3] = 0, np.inf, np.nan, -1
    name = "SIGMA_SPECTRUM" if spectrum else "SIGMA"
    remove_columns(made.path, name)
    add_column(made.path, name, sigma)
    (w,) = select([made.path], Selection(weight_column=name)).windows
    _, _, weight = read_window(w, rows=17)
    unflagged = read_window(select([made.path], Selection()).windows[0])[2] > 0
    wanted = np.broadcast_to(sigma if spectrum else sigma[:, None], shape)
    assert not weight[:4].any()
    assert (weight[4:] > 0).any()
    np.testing.assert_array_equal(weight[4:] > 0, unflagged[4:])
    np.testing.assert_allclose(weight[4:], np.where(unflagged[4:], 1 / wanted[4:] ** 2, 0), rtol=1e-6)


def test_no_standard_deviation_is_no_weight():
    values = np.array([2, 0.5, 0, -1, np.inf, np.nan, 1e-30], np.float32)
    np.testing.assert_array_equal(to_weights(values), np.array([0.25, 4, 0, 0, 0, 0, np.inf], np.float32))


def default(path):
    data = select([path], Selection())
    return data.windows[0].weight_column, " ".join((*data.notes, *data.warnings))


def test_unit_standard_deviations_never_undo_weights(made):
    add_column(made.path, "SIGMA_SPECTRUM", np.ones(column(made.path, "FLAG").shape, np.float32))
    used, said = default(made.path)
    assert used == "WEIGHT_SPECTRUM"
    assert "times 1 / SIGMA_SPECTRUM^2; SIGMA_SPECTRUM is not used" in said
    assert "1 / SIGMA^2" not in said, "WEIGHT and SIGMA agree"
    warnings = select([made.path], Selection(weight_column="SIGMA_SPECTRUM")).warnings
    assert any("WEIGHT_SPECTRUM is not used" in warning for warning in warnings)


def test_the_order_of_weight_columns(made):
    shape = column(made.path, "FLAG").shape
    add_column(made.path, "SIGMA_SPECTRUM", np.full(shape, 2, np.float32))
    change(made.path, "WEIGHT_SPECTRUM", np.ones_like)
    assert default(made.path)[0] == "WEIGHT"
    remove_columns(made.path, "WEIGHT")
    used, said = default(made.path)
    assert used == "SIGMA_SPECTRUM"
    assert "1 / SIGMA_SPECTRUM^2 gives the weights, because WEIGHT_SPECTRUM is all one, WEIGHT does not exist" in said
    remove_columns(made.path, "SIGMA_SPECTRUM")
    assert default(made.path)[0] == "SIGMA"
    remove_columns(made.path, "SIGMA")
    used, said = default(made.path)
    assert used == "WEIGHT_SPECTRUM"
    assert "all of them one" in said
    change(made.path, "WEIGHT_SPECTRUM", np.zeros_like)
    with pytest.raises(InputError, match=r"\(WEIGHT_SPECTRUM is all zero, WEIGHT does not exist\); fill one of them"):
        default(made.path)


def test_weights_of_zero_are_not_overruled_unless_asked(tmp_path):
    made = small_set(tmp_path / "a.ms", nant=5, weight_spectrum="zero", weight="zero")
    change(made.path, "SIGMA", lambda s: np.full_like(s, 0.5))
    with pytest.raises(InputError, match=r"WEIGHT is all zero\); image with --weight-column SIGMA"):
        default(made.path)
    (w,) = select([made.path], Selection(weight_column="SIGMA")).windows
    assert set(np.unique(read_window(w)[2])) == {0, 4}
    change(made.path, "SIGMA", np.zeros_like)
    with pytest.raises(InputError, match=r"SIGMA of .* has no positive number, which leaves nothing to image"):
        select([made.path], Selection(weight_column="SIGMA"))
