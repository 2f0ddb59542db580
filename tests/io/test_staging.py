import os
import subprocess
import sys

import pytest

from pfb.errors import InputError
from pfb.io import staging
from pfb.io.staging import require_writable, scratch, staged


def write(path, text, as_folder):
    if as_folder:
        path.mkdir()
        path = path / "chunk"
    path.write_text(text)


def read(path):
    return (path / "chunk" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("as_folder", [False, True], ids=["file", "folder"])
def test_product_appears_only_when_complete(tmp_path, as_folder):
    final = tmp_path / "a.zarr"
    with staged(final, overwrite=False) as temporary:
        write(temporary, "new", as_folder)
        assert not final.exists()
        assert temporary.parent == final.parent
        assert temporary.name.startswith(".")
        assert str(os.getpid()) in temporary.name
        assert temporary.suffix == final.suffix
    assert read(final) == "new"
    assert os.listdir(tmp_path) == ["a.zarr"]


@pytest.mark.parametrize("new_is_folder", [False, True])
@pytest.mark.parametrize("old_is_folder", [False, True])
def test_old_product_stays_until_the_new_one_is_complete(tmp_path, old_is_folder, new_is_folder):
    final = tmp_path / "a.zarr"
    write(final, "old", old_is_folder)
    with staged(final, overwrite=True) as temporary:
        write(temporary, "new", new_is_folder)
        assert read(final) == "old"
    assert read(final) == "new"
    assert os.listdir(tmp_path) == ["a.zarr"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("as_folder", [False, True], ids=["file", "folder"])
def test_failure_leaves_the_old_product_and_nothing_else(tmp_path, as_folder, error):
    final = tmp_path / "a.zarr"
    write(final, "old", as_folder)

    def fail():
        with staged(final, overwrite=True) as temporary:
            write(temporary, "new", as_folder)
            raise error

    with pytest.raises(error):
        fail()
    assert read(final) == "old"
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_old_folder_comes_back_if_the_rename_fails(tmp_path):
    final = tmp_path / "a.zarr"
    write(final, "old", True)
    with pytest.raises(FileNotFoundError), staged(final, overwrite=True):
        pass  # nothing was written, so there is nothing to rename
    assert read(final) == "old"


def test_one_may_stage_twice_at_once(tmp_path):
    final = tmp_path / "a.fits"
    with staged(final, overwrite=True) as one, staged(final, overwrite=True) as two:
        assert one != two
        one.write_text("one")
        two.write_text("two")
    assert final.read_text() == "one"


def test_existing_product_is_refused_without_overwrite(tmp_path):
    final = tmp_path / "a.fits"
    final.write_text("old")
    with pytest.raises(InputError, match=r"a\.fits exists already.*--overwrite"), staged(final, overwrite=False):
        raise AssertionError("the block must not run")


def test_product_that_appeared_meanwhile_is_kept(tmp_path):
    final = tmp_path / "a.fits"

    def race():
        with staged(final, overwrite=False) as temporary:
            temporary.write_text("mine")
            final.write_text("theirs")

    with pytest.raises(InputError, match="exists already"):
        race()
    assert final.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a.fits"]


def test_require_writable_names_all_that_exist(tmp_path):
    paths = [tmp_path / name for name in ("a.fits", "b.fits", "c.zarr")]
    require_writable(paths, overwrite=False)
    paths[0].write_text("")
    paths[2].mkdir()
    with pytest.raises(InputError, match=r"a\.fits.*c\.zarr exists already") as error:
        require_writable(paths, overwrite=False)
    assert "b.fits" not in str(error.value)
    require_writable(paths, overwrite=True)


def test_require_writable_sees_a_dangling_link(tmp_path):
    link = tmp_path / "a.fits"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="exists already"):
        require_writable([link], overwrite=False)


def test_missing_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"folder .*nowhere of a\.fits does not exist; create it"):
        require_writable([tmp_path / "nowhere" / "a.fits"], overwrite=True)


def test_folder_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="does not exist"):
        require_writable([tmp_path / "file" / "a.fits"], overwrite=True)


def test_folder_without_permission_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(InputError, match=r"folder .* of a\.fits is not writable; write elsewhere"):
        require_writable([tmp_path / "a.fits"], overwrite=True)


KILLED = """
import os, signal, sys
from pfb.io.staging import scratch, staged
with scratch(sys.argv[1]) as folder, staged(sys.argv[1], True) as outer, staged(outer, True) as inner:
    (folder / "chunk").write_text("half")
    outer.mkdir()
    inner.write_text("half")
    print(flush=True)
    os.kill(os.getpid(), signal.{how})
    sys.stdin.read()
"""


@pytest.fixture
def leftovers(tmp_path):
    """Make a process write the product a.zarr and die, or stop, before it is complete."""
    started = []

    def make(how="SIGKILL"):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED.format(how=how), str(tmp_path / "a.zarr")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        process.stdout.read(1)
        if how == "SIGKILL":
            process.wait()
        return {name for name in os.listdir(tmp_path) if str(process.pid) in name}

    yield make
    for process in started:
        process.kill()
        process.communicate()


def write_again(path):
    with scratch(path), staged(path, overwrite=True) as temporary:
        temporary.write_text("new")


def test_what_a_killed_process_left_goes_when_its_product_is_written_again(tmp_path, leftovers):
    left = leftovers()
    assert len(left) == 3
    assert all(name.startswith(".") for name in left)
    write_again(tmp_path / "b.zarr")
    write_again(tmp_path / "zarr")
    assert left < set(os.listdir(tmp_path)), "another product's leftovers were removed"
    write_again(tmp_path / "a.zarr")
    assert sorted(os.listdir(tmp_path)) == ["a.zarr", "b.zarr", "zarr"]
    assert read(tmp_path / "a.zarr") == "new"


def test_what_a_living_process_writes_stays(tmp_path, leftovers):
    left = leftovers(how="SIGCONT")
    assert len(left) == 3
    write_again(tmp_path / "a.zarr")
    assert set(os.listdir(tmp_path)) == left | {"a.zarr"}


def test_what_another_machine_writes_stays(tmp_path, leftovers, monkeypatch):
    left = leftovers()
    monkeypatch.setattr(staging, "_machine", lambda: "0" * 8)
    write_again(tmp_path / "a.zarr")
    assert set(os.listdir(tmp_path)) == left | {"a.zarr"}


def test_the_old_product_that_a_killed_process_put_aside_stays_until_there_is_a_new_one(tmp_path, leftovers):
    (name,) = [name for name in leftovers() if "-scratch-" in name]
    aside = tmp_path / name.replace("-scratch-", "-old-")
    (tmp_path / name).rename(aside)
    with staged(tmp_path / "a.zarr", overwrite=False) as temporary:
        temporary.write_text("new")
        assert aside.exists()
    assert not aside.exists()


def test_scratch_is_empty_hidden_and_gone_afterwards(tmp_path):
    with scratch(tmp_path / "a.zarr") as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".")
        assert not list(folder.iterdir())
        (folder / "a").write_text("")
    assert not list(tmp_path.iterdir())
