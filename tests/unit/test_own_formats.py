"""Formats are one list; one of your own is read beside them, and is somebody's own code wherever a run names it."""

import doctest
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import SimpleITK as sitk
from examples.own_format import NUMPY
from PIL import Image

from fedce.base import registry
from fedce.base.config import dumps, load, parse
from fedce.base.errors import ConfigError, DataError
from fedce.data import formats, load_sites
from fedce.data.formats import FORMATS, Format, Formats
from fedce.federation.plan import code_of
from fedce.questions.predict import predict_files
from fedce.record.folder import RunFolder

OWN = "examples.own_format:NUMPY"


def picture(i: int) -> np.ndarray:
    return np.add.outer(np.arange(32), np.arange(32) + i).astype(np.uint8)


def mask() -> np.ndarray:
    return np.pad(np.ones((8, 8), np.uint8), 12)


def write_federation(root: Path, n: int = 4) -> Path:
    """One site has NumPy files with PNG masks, the other PNG files alone."""
    for i in range(n):
        for name in ("north/images", "north/masks", "south/images", "south/masks"):
            (root / name).mkdir(parents=True, exist_ok=True)
        np.save(root / f"north/images/{i}.npy", picture(i))
        Image.fromarray(mask()).save(root / f"north/masks/{i}.png")
        Image.fromarray(picture(i)).save(root / f"south/images/{i}.png")
        Image.fromarray(mask()).save(root / f"south/masks/{i}.png")
    return root


def offer(monkeypatch, own: object) -> str:
    monkeypatch.setattr(registry, "load_object", lambda path, key: own)
    return "here:MINE"


def test_examples_of_the_list():
    found = doctest.testmod(formats)
    assert found.attempted
    assert not found.failed


def test_every_ending_belongs_to_one_format():
    endings = [end for one in FORMATS if one.is_folder is None for end in one.endings]
    assert len(endings) == len(set(endings))
    assert all(end.startswith(".") and end == end.lower() for end in endings)


@pytest.mark.parametrize(
    ("name", "format", "stem"),
    [("a.PNG", "PNG", "a"), ("a.b.nii.gz", "NIfTI", "a.b"), ("a.mhd", "MetaImage header", "a"), ("a", "image", "a")],
)
def test_a_file_is_read_by_its_ending(name: str, format: str, stem: str):
    known = Formats()
    assert known.file(Path(name)).format.name == format
    assert known.stem(Path(name)) == stem


def test_a_format_of_ones_own_is_read_beside_ours(tmp_path: Path):
    sites = load_sites(str(write_federation(tmp_path)), format=OWN)
    north, south = sites
    assert np.array_equal(north.images, south.images)
    assert north.files == south.files == ("0", "1", "2", "3")
    with pytest.raises(DataError, match="site 'north': 4 masks have no image of the same name"):
        load_sites(str(write_federation(tmp_path)))


def test_lists_may_name_files_of_ones_own_format(tmp_path: Path):
    write_federation(tmp_path)
    for site in ("north", "south"):
        end = ".npy" if site == "north" else ".png"
        entries = [f'{{"image": "{site}/images/{i}{end}", "label": "{site}/masks/{i}.png"}}' for i in range(4)]
        (tmp_path / f"client_{site}.json").write_text(f'{{"training": [{", ".join(entries)}]}}')
    north, south = load_sites(str(tmp_path), format=OWN)
    assert np.array_equal(north.images, south.images)


def test_a_volume_of_ones_own_keeps_its_place_and_spacing(tmp_path: Path, monkeypatch):
    def read(path: Path) -> sitk.Image:
        volume = sitk.GetImageFromArray(np.load(path))
        volume.SetSpacing((0.5, 0.5, 3.0))
        return volume

    for site in ("north", "south"):
        for i in range(4):
            for kind, values in (("images", picture(i)), ("masks", mask())):
                (tmp_path / site / kind).mkdir(parents=True, exist_ok=True)
                np.save(tmp_path / site / kind / f"{i}.npy", np.stack([values] * 3))
    own = offer(monkeypatch, Format("NumPy volume", (".npy",), "volume", read))
    north, _ = load_sites(str(tmp_path), format=own)
    assert len(north.images) == 12
    assert {origin.spacing for origin in north.origins} == {(0.5, 0.5)}


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (lambda path: 1 / 0, "can't read the image .*0.npy: division by zero"),
        (lambda path: [[1]], "expected an array of numbers, .height, width. or .height, width, 3., but got list"),
        (lambda path: np.ones((4, 4, 2)), r"but got float64 values of shape \(4, 4, 2\)"),
        (lambda path: np.full((32, 32), np.nan), "values that are not numbers"),
        (lambda path: np.broadcast_to(np.uint8(0), (10_000, 10_000)), "has 10000x10000 pixels; at most 64000000"),
    ],
)
def test_what_a_reader_can_not_give_is_one_line(tmp_path: Path, monkeypatch, read, line):
    own = offer(monkeypatch, Format("Mine", (".npy",), "image", read))
    with pytest.raises(DataError, match=line):
        load_sites(str(write_federation(tmp_path, n=4)), format=own)


def test_a_volume_that_is_no_image_of_itk_is_one_line(tmp_path: Path, monkeypatch):
    own = offer(monkeypatch, Format("Mine", (".npy",), "volume", np.load))
    with pytest.raises(DataError, match="expected a SimpleITK image from its reader, got ndarray"):
        load_sites(str(write_federation(tmp_path)), format=own)


def test_an_unknown_format_is_one_line(monkeypatch):
    with pytest.raises(
        ConfigError, match=r"data\.format: input should be 'auto', .*or package.module:NAME, did you mean 'volumes'"
    ):
        parse({"data": {"format": "volume"}})
    own = offer(monkeypatch, Format("Mine", ("NPY",), "image", np.load))
    with pytest.raises(ConfigError, match=r"here:MINE has the endings \('NPY',\), expected some such as"):
        Formats.named_by(own)
    own = offer(monkeypatch, print)
    with pytest.raises(ConfigError, match=r"data\.format: expected here:MINE to be of class Format, got builtin"):
        Formats.named_by(own)


def test_another_reader_does_not_see_the_cache_of_the_first(tmp_path: Path, monkeypatch):
    """A reader that was changed in its file has another version, and so the cache another key."""
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    data = write_federation(tmp_path / "data")
    monkeypatch.syspath_prepend(tmp_path)
    code = "import numpy as np\nfrom fedce.data.formats import Format\n\ndef read(path):\n    return {}np.load(path)\n"
    module = tmp_path / "changing_format.py"
    seen = []
    for sign in ("", "255 - "):
        module.write_text(f"{code.format(sign)}\n\nMINE = Format('Mine', ('.npy',), 'image', read)\n")
        monkeypatch.delitem(registry.sys.modules, "changing_format", raising=False)
        seen.append(np.array(load_sites(str(data), format="changing_format:MINE")[0].images))
    assert np.array_equal(seen[1], 255 - seen[0])


def test_a_format_is_somebodys_own_code(tmp_path: Path, monkeypatch):
    named = {"npy": OWN}
    monkeypatch.setattr(
        registry, "entry_points", lambda group, name: [SimpleNamespace(value=named[name])] if name in named else []
    )
    config = parse({"data": {"format": "npy"}})
    assert config.data.format == OWN, "recorded as the path"
    assert code_of(config) == {"data.format": OWN}
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.config_file.write_text(dumps(load(None, {"data.format": OWN})))
    with pytest.raises(ConfigError, match=f"names code that would be run .data.format = {OWN}.; add --trust-code"):
        list(predict_files(run.path, [tmp_path / "a.npy"], tmp_path / "out"))


def test_the_example_reads_no_pickles(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array([print], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"can't read the image .*allow_pickle"):
        Formats((NUMPY,)).file(tmp_path / "a.npy").image()
