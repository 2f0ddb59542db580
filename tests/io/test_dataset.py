import json
import multiprocessing
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
import xarray as xr
import zarr

from pfb import __version__
from pfb.errors import InputError, ShapeError
from pfb.io import dataset
from pfb.io.dataset import HISTORY, SCHEMA, Layout
from pfb.types import Band, Geometry, Observation, Plane

GEOMETRY = Geometry(nx=6, ny=9, cell=1e-5, ra=1.0, dec=-0.5, frame="ICRS")
OBSERVATION = Observation(telescope="MeerKAT", object="field", observer="someone", start=5.2e9)
BANDS = [Band(index=i, freq_min=1e9 + i * 1e8, freq_max=1.1e9 + i * 1e8, freq=1.05e9 + i * 1e8) for i in range(4)]
LAYOUT = Layout(
    maker="clean", geometry=GEOMETRY, observation=OBSERVATION, bands=BANDS, psf_shape=(10, 14), products="QI",
    options={"nband": 4, "mask": None}, bases=("self", "db1"), nlevels=2, ncoefficient=70,
)  # fmt: skip


def values(name, layout, rng):
    sizes = layout.sizes()
    return rng.standard_normal([sizes[dim] for dim in SCHEMA[name].dims])


def fill(path, layout, rng):
    """Write every variable plane by plane and return what was written."""
    dataset.create(path, layout)
    names = [name for name, variable in SCHEMA.items() if layout.maker in variable.makers]
    written = {name: values(name, layout, rng) for name in names}
    for name in names:
        for plane in product(range(len(layout.products)), range(len(layout.bands))):
            index = dict(zip(("stokes", "band"), plane, strict=True))
            dataset.write(path, name, Plane(*plane), written[name][tuple(index.get(d, slice(None)) for d in SCHEMA[name].dims)])
    return written


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def store(tmp_path, rng):
    path = tmp_path / "run.zarr"
    fill(path, LAYOUT, rng)
    dataset.finish(path)
    return path


@pytest.mark.parametrize("maker", ["image", "clean"])
def test_what_was_written_plane_by_plane_is_read_by_xarray_without_a_warning(tmp_path, rng, maker):
    path = tmp_path / "run.zarr"
    written = fill(path, replace(LAYOUT, maker=maker), rng)
    dataset.finish(path, [dict(peak=[3.0, 4.0], seconds=2.5), dict(peak=[2.0, 1.0], rms=[0.5, 0.6])], {"reason": "converged"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        foreign = xr.open_zarr(path)
        plain = xr.open_zarr(path, consolidated=False)
        ours = dataset.open_dataset(path, needs=maker)
    for ds in (foreign, plain, ours):
        for name, array in written.items():
            assert ds[name].dims == SCHEMA[name].dims
            assert ds[name].dtype == np.float64
            assert ds[name].attrs["units"] == SCHEMA[name].units
            np.testing.assert_array_equal(ds[name].values, array)
        assert ds.history_peak.dims == ds.history_rms.dims == ("cycle", "stokes")
        assert ds.history_peak.values.tolist() == [[3.0, 4.0], [2.0, 1.0]]
        assert np.isnan(ds.history_rms.values[0]).all()
        assert ds.history_seconds.dims == ("cycle",)
        assert ds.history_seconds.values[0] == 2.5
        assert np.isnan(ds.history_seconds.values[1])
        assert all(ds[f"history_{name}"].attrs["units"] == units for name, (units, _) in HISTORY.items())
        assert ds.attrs["reason"] == "converged"
    assert "freq" in ours.coords
    np.testing.assert_array_equal(ours.dirty.sel(stokes="I"), written["dirty"][1])
    assert ("model" in ours) == ("dual" in ours) == (maker == "clean")


def test_attributes_return_to_records(store):
    ds = dataset.open_dataset(store)
    assert dataset.geometry(ds) == GEOMETRY
    assert dataset.observation(ds) == OBSERVATION
    assert ds.attrs["options"] == {"nband": 4, "mask": None}
    assert ds.attrs["bases"] == ["self", "db1"]
    assert ds.attrs["nlevels"] == 2
    assert ds.attrs["software"]["pfb"] == __version__
    assert ds.attrs["software"]["numpy"] == np.__version__
    assert [band.index for band in dataset.bands(ds)] == [0, 1, 2, 3]
    assert dataset.products(ds) == "QI"


def test_frequencies_are_there_from_the_start(tmp_path):
    path = tmp_path / "run.zarr"
    dataset.create(path, LAYOUT)
    dataset.write(path, "wsum", None, np.ones((2, 4)))
    dataset.finish(path)
    assert dataset.bands(dataset.open_dataset(path)) == BANDS


def test_what_was_not_written_is_nan(tmp_path):
    path = tmp_path / "run.zarr"
    dataset.create(path, LAYOUT)
    dataset.write(path, "dirty", Plane(1, 2), np.ones(GEOMETRY.shape))
    dirty = dataset.read(path, "dirty")
    assert (dirty[1, 2] == 1).all()
    assert np.isnan(dirty).sum() == dirty.size * 7 / 8
    assert np.isnan(dataset.read(path, "dual")).all()


def test_read_returns_one_plane_or_all(store):
    ds = dataset.open_dataset(store)
    np.testing.assert_array_equal(dataset.read(store, "psf", Plane(0, 1)), ds.psf.values[0, 1])
    np.testing.assert_array_equal(dataset.read(store, "dual", Plane(1, 3)), ds.dual.values[:, 1, 3])
    np.testing.assert_array_equal(dataset.read(store, "model"), ds.model.values)
    assert float(dataset.read(store, "wsum", Plane(1, 2))) == ds.wsum.values[1, 2]
    assert float(dataset.read(store, "freq", Plane(1, 2))) == ds.freq.values[2]


def test_layout_chooses_the_precision_of_images_only(tmp_path, rng):
    path = tmp_path / "run.zarr"
    dataset.create(path, replace(LAYOUT, dtype="f4"))
    assert dataset.read(path, "residual").dtype == dataset.read(path, "dual").dtype == np.float32
    assert dataset.read(path, "freq").dtype == dataset.read(path, "wsum").dtype == np.float64


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_bands_may_be_written_at_the_same_time(tmp_path, processes):
    path = tmp_path / "run.zarr"
    dataset.create(path, replace(LAYOUT, bands=BANDS * 4))
    planes = [Plane(s, b) for s in range(2) for b in range(16)]
    jobs = [(path, "model", plane, np.full(GEOMETRY.shape, plane.band + 20.0 * plane.stokes)) for plane in planes]
    jobs += [(path, "dual", plane, np.full((2, 70), plane.band + 20.0 * plane.stokes)) for plane in planes]
    jobs += [(path, "wsum", plane, plane.band + 20.0 * plane.stokes) for plane in planes]
    if processes:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.starmap(dataset.write, jobs)
    else:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(dataset.write, *zip(*jobs, strict=True)))
    expected = np.arange(16.0) + np.array([[0.0], [20.0]])
    np.testing.assert_array_equal(dataset.read(path, "wsum"), expected)
    assert (dataset.read(path, "model") == expected[..., None, None]).all()
    assert (dataset.read(path, "dual") == expected[..., None]).all()


@pytest.mark.parametrize(("nx", "ny"), [(6, 9), (8192, 8192), (20000, 20011), (3, 40_000_000)])
def test_no_chunk_spans_bands_or_exceeds_64_mib(tmp_path, nx, ny):
    path = tmp_path / "run.zarr"
    layout = replace(LAYOUT, geometry=replace(GEOMETRY, nx=nx, ny=ny), psf_shape=(nx + 3, ny + 1), ncoefficient=nx * ny + 7)
    dataset.create(path, layout)
    group = zarr.open_group(path, mode="r")
    for name, array in group.arrays():
        dims = SCHEMA[name].dims
        assert all(array.chunks[dims.index(dim)] == 1 for dim in ("stokes", "band") if dim in dims)
        assert np.prod(array.chunks) * array.dtype.itemsize <= 64 * 2**20
        # Cut no finer than needed: fewer chunks than twice the least possible, one at least.
        least = max(1, np.prod(array.shape) * array.dtype.itemsize / (64 * 2**20))
        pieces = np.prod([array.shape[dims.index(d)] for d in ("stokes", "band", "basis") if d in dims])
        assert array.nchunks <= pieces * max(1, 2 * least)


def test_wide_planes_are_cut_into_several_chunks(tmp_path, monkeypatch, rng):
    monkeypatch.setattr(dataset, "CHUNK_BYTES", 200)
    path = tmp_path / "run.zarr"
    written = fill(path, LAYOUT, rng)
    assert zarr.open_array(path / "model", mode="r").chunks == (1, 1, 2, 9)
    for name, array in written.items():
        np.testing.assert_array_equal(dataset.read(path, name), array)


def test_finish_keeps_the_attributes_and_may_be_repeated(store):
    dataset.finish(store, [dict(peak=[1.0, 2.0])])
    dataset.finish(store, [dict(peak=[1.0, 2.0]), dict(peak=[0.5, 0.6])])
    ds = dataset.open_dataset(store)
    assert ds.history_peak.values.tolist() == [[1.0, 2.0], [0.5, 0.6]]
    assert ds.attrs["geometry"] == asdict(GEOMETRY)


def test_finish_refuses_a_band_that_was_never_written(tmp_path):
    path = tmp_path / "run.zarr"
    dataset.create(path, LAYOUT)
    for plane in (Plane(0, 1), Plane(1, 1), Plane(1, 2)):
        dataset.write(path, "wsum", plane, 2.0)
    with pytest.raises(InputError, match=r"no weight sum for bands \[0, 2, 3\]"):
        dataset.finish(path)


def test_finish_refuses_an_unknown_column(store):
    with pytest.raises(InputError, match="unknown columns colour; it may have peak, rms"):
        dataset.finish(store, [dict(peak=[1.0, 2.0], colour=2.0)])


def test_create_refuses_what_exists(store):
    with pytest.raises(InputError, match="exists already"):
        dataset.create(store, LAYOUT)


def test_wrong_shape_names_both(store):
    with pytest.raises(ShapeError, match=r"model of .* takes an array of shape \(6, 9\) but got \(9, 6\)"):
        dataset.write(store, "model", Plane(0, 0), np.zeros((9, 6)))


@pytest.mark.parametrize("band", [-1, 4])
def test_band_out_of_range(store, band):
    with pytest.raises(InputError, match=f"bands 0 to 3 but band {band} was asked for"):
        dataset.read(store, "model", Plane(0, band))


def test_product_out_of_range(store):
    with pytest.raises(InputError, match="products 0 to 1 but product 2 was asked for"):
        dataset.write(store, "wsum", Plane(2, 0), 1.0)


def test_unknown_and_absent_variables(store, tmp_path):
    with pytest.raises(InputError, match="no variable modle; it may have freq"):
        dataset.read(store, "modle", Plane(0, 0))
    path = tmp_path / "dirty.zarr"
    dataset.create(path, replace(LAYOUT, maker="image"))
    with pytest.raises(InputError, match="has no variable model"):
        dataset.read(path, "model", Plane(0, 0))


def edit(path, change):
    """Change the metadata of a store or of one of its variables."""
    content = json.loads((path / "zarr.json").read_text())
    change(content)
    (path / "zarr.json").write_text(json.dumps(content))


def test_missing_store(tmp_path):
    with pytest.raises(InputError, match=r"run\.zarr does not exist; give the PREFIX\.zarr"):
        dataset.open_dataset(tmp_path / "run.zarr")


def test_folder_that_is_no_store(tmp_path):
    with pytest.raises(InputError, match="is not a zarr 3 store"):
        dataset.open_dataset(tmp_path)


def test_broken_store(store):
    (store / "zarr.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as a dataset"):
        dataset.open_dataset(store)


def test_foreign_store(tmp_path):
    xr.Dataset({"a": ("x", np.arange(3.0))}).to_zarr(tmp_path / "run.zarr", zarr_format=3, consolidated=False)
    with pytest.raises(InputError, match="was not written by pfb"):
        dataset.open_dataset(tmp_path / "run.zarr")


def test_store_of_another_schema(store):
    edit(store, lambda content: content["attributes"].update(schema=99))
    with pytest.raises(InputError, match=r"has schema 99, of another release .* reads schema 2, which has an axis of Stokes"):
        dataset.open_dataset(store)


def test_unfinished_store(tmp_path):
    path = tmp_path / "run.zarr"
    dataset.create(path, LAYOUT)
    with pytest.raises(InputError, match="is unfinished"):
        dataset.open_dataset(path)


def test_store_without_a_model(tmp_path, rng):
    path = tmp_path / "run.zarr"
    fill(path, replace(LAYOUT, maker="image"), rng)
    dataset.finish(path)
    dataset.open_dataset(path)
    with pytest.raises(InputError, match="made by pfb image and has no model; make one with pfb clean"):
        dataset.open_dataset(path, needs="clean")


def test_store_that_lacks_variables_and_attributes(store):
    shutil.rmtree(store / "residual")
    shutil.rmtree(store / "beam")
    edit(store, lambda content: content["attributes"].pop("observation"))
    with pytest.raises(InputError, match="lacks beam, residual, attribute observation"):
        dataset.open_dataset(store)


def test_store_with_other_dimensions(store):
    edit(store / "dirty", lambda content: content.update(dimension_names=["stokes", "band", "y", "x"]))
    edit(store / "model", lambda content: content.update(dimension_names=["stokes", "band", "y", "x"]))
    edit(store / "residual", lambda content: content.update(dimension_names=["stokes", "band", "y", "x"]))
    edit(store / "update", lambda content: content.update(dimension_names=["stokes", "band", "y", "x"]))
    with pytest.raises(InputError, match=r"\('stokes', 'band', 'y', 'x'\) but needs \('stokes', 'band', 'x', 'y'\)"):
        dataset.open_dataset(store)


def test_store_whose_geometry_is_another_one(store):
    edit(store, lambda content: content["attributes"]["geometry"].update(nx=7))
    with pytest.raises(InputError, match=r"have shape \(6, 9\) but its geometry says \(7, 9\)"):
        dataset.open_dataset(store)


def test_store_whose_geometry_is_damaged(store):
    edit(store, lambda content: content["attributes"]["geometry"].pop("cell"))
    with pytest.raises(InputError, match="are damaged"):
        dataset.open_dataset(store)


def test_store_whose_products_are_others(store):
    edit(store, lambda content: content["attributes"].update(stokes=["I"]))
    with pytest.raises(InputError, match="has 2 products but names I"):
        dataset.open_dataset(store)
