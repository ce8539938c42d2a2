"""Six fundus data sets in their published layouts, with small files of the real formats."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from fedce.base.config import load
from fedce.base.errors import DataError
from fedce.data import load_sites
from fedce.data import prepare as preparing
from fedce.data.prepare.contours import disc_and_cup, majority, square_around

WIDTH, HEIGHT = 240, 180
Circle = tuple[int, int, int]
"""Column and row of the centre, radius."""


def inside(circle: Circle, width: int = WIDTH) -> np.ndarray:
    column, row, radius = circle
    rows, columns = np.mgrid[:HEIGHT, :width]
    return (rows - row) ** 2 + (columns - column) ** 2 <= radius**2


def photo(disc: Circle, cup: Circle, width: int = WIDTH) -> np.ndarray:
    """A retina with a brighter disc and a still brighter cup, and some texture."""
    grey = 60 + 60 * inside(disc, width) + 60 * inside(cup, width)
    texture = np.random.default_rng(0).integers(0, 6, (HEIGHT, width))
    return np.stack([grey + texture + 30, grey + texture, grey // 2], axis=-1).astype(np.uint8)


def save(pixels: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"quality": 95} if path.suffix == ".jpg" else {}
    Image.fromarray(pixels.astype(np.uint8)).save(path, **options)


def anatomy(case: int) -> tuple[Circle, Circle]:
    """Disc and cup, somewhere else for every case."""
    column, row = 90 + 10 * case, 80 + 5 * case
    return (column, row, 26), (column + 3, row - 2, 12)


def drishti(root: Path) -> None:
    for case, part, truth in ((2, "Training", "GT"), (1, "Test", "Test_GT")):
        name, folder = f"drishtiGS_{case:03d}", root / "Drishti-GS1_files" / part
        disc, cup = anatomy(case)
        save(photo(disc, cup), folder / "Images" / f"{name}.png")
        for what, (column, row, radius) in (("ODseg", disc), ("cupseg", cup)):
            # Four experts, each with a larger circle: three of them agree on the second smallest.
            votes = [inside((column, row, radius + step)) for step in (-2, 0, 2, 4)]
            save(np.mean(votes, axis=0) * 255, folder / truth / name / "SoftMap" / f"{name}_{what}Softmap.png")


def drawn(case: int, expert: int) -> np.ndarray:
    """A copy of the photograph with both contours in it, as the expert saw them."""
    copy = Image.fromarray(photo(*anatomy(case)))
    for column, row, radius in anatomy(case):
        reach = radius + (6 if expert == 6 else 0)
        ImageDraw.Draw(copy).ellipse((column - reach, row - reach, column + reach, row + reach), outline=(0, 0, 255))
    return np.asarray(copy)


def riga(root: Path) -> None:
    for folder, ending, cases in (
        ("BinRushed/BinRushed1-Corrected", "jpg", (1, 2)),
        ("BinRushed/BinRushed2", "jpg", (1,)),
        ("Magrabia/MagrabiaMale", "tif", (10, 1)),
        ("MESSIDOR", "tif", (3,)),
    ):
        for case in cases:
            save(photo(*anatomy(case % 10)), root / "RIGA" / folder / f"image{case}prime.{ending}")
            for expert in range(1, 7):
                save(drawn(case % 10, expert), root / "RIGA" / folder / f"image{case}-{expert}.{ending}")


def rim_one(root: Path) -> None:
    """The second eye is drawn in one view only."""
    for case, name, group, views in ((0, "N-1-L", "Healthy", 2), (1, "G-12-R", "Glaucoma and suspects", 1)):
        disc, cup = anatomy(case)
        other = [(column + 8, row, radius) for column, row, radius in (disc, cup)]
        folder = root / "RIM-ONE r3" / group
        save(np.hstack([photo(disc, cup), photo(*other)]), folder / "Stereo Images" / f"{name}.jpg")
        for what, left, right in (("Disc", disc, other[0]), ("Cup", cup, other[1])):
            mask = np.hstack([inside(left), inside(right) & (views == 2)])
            save(255 * mask, folder / "Average_masks" / f"{name}-{what}-Avg.png")


def refuge(root: Path) -> None:
    folder = root / "REFUGE"
    for case, image, mask in (
        (1, "Training400/Glaucoma/g0001.jpg", "Annotation-Training400/Disc_Cup_Masks/Glaucoma/g0001.bmp"),
        (2, "Training400/Non-Glaucoma/n0001.jpg", "Annotation-Training400/Disc_Cup_Masks/Non-Glaucoma/n0001.bmp"),
        (3, "REFUGE-Validation400/V0001.jpg", "REFUGE-Validation400-GT/Disc_Cup_Masks/V0001.bmp"),
        (4, "Test400/T0001.jpg", "REFUGE-Test-GT/Disc_Cup_Masks/G/T0001.bmp"),
    ):
        disc, cup = anatomy(case)
        save(photo(disc, cup), folder / image)
        save(np.where(inside(cup), 0, np.where(inside(disc), 128, 255)), folder / mask)


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("published")
    for build in (drishti, riga, rim_one, refuge):
        build(root)
    return root


@pytest.fixture(scope="module")
def prepared(published: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "out"
    preparing.prepare("fundus", published, out, lambda message: None)
    return out


def read(out: Path, site: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    image, mask = (np.asarray(Image.open(out / site / part / f"{name}.png")) for part in ("images", "masks"))
    assert image.shape == (*mask.shape, 3)
    return image, mask


def radius(mask: np.ndarray) -> float:
    return float(np.sqrt(mask.sum() / np.pi))


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.png"))}


def test_every_source_becomes_a_site(prepared: Path):
    names = {
        site.name: sorted(path.stem for path in (site / "images").iterdir())
        for site in sorted(prepared.iterdir())
        if site.is_dir()
    }
    assert names == {
        "BinRushed": ["BinRushed1-Corrected_image1", "BinRushed1-Corrected_image2", "BinRushed2_image1"],
        "Drishti-GS": ["drishtiGS_001", "drishtiGS_002"],
        "MESSIDOR": ["MESSIDOR_image3"],
        "Magrabia": ["MagrabiaMale_image1", "MagrabiaMale_image10"],
        "REFUGE": ["T0001", "V0001", "g0001", "n0001"],
        "RIM-ONE": ["G-12-R", "N-1-L"],
    }


@pytest.mark.parametrize(
    ("site", "name"),
    [
        ("Drishti-GS", "drishtiGS_001"),
        ("Drishti-GS", "drishtiGS_002"),
        ("BinRushed", "BinRushed1-Corrected_image2"),
        ("Magrabia", "MagrabiaMale_image10"),
        ("MESSIDOR", "MESSIDOR_image3"),
        ("REFUGE", "T0001"),
        ("REFUGE", "V0001"),
    ],
)
def test_disc_and_cup_are_where_the_photograph_shows_them(prepared: Path, site: str, name: str):
    image, mask = read(prepared, site, name)
    assert set(np.unique(mask)) == {0, 128, 255}
    # In a JPEG the colour of a line spreads by two pixels, which is much only in pictures as small as these.
    tolerance = 2.5 if site == "BinRushed" else 1
    assert radius(mask > 0) == pytest.approx(26, abs=tolerance)
    assert radius(mask == 255) == pytest.approx(12, abs=tolerance)
    green = image[..., 1].astype(float)
    for wrong in ((green > 90) != (mask > 0), (green > 150) != (mask == 255)):
        # Contours are a pixel wide, and a mask of another case would be wrong by more than half.
        assert wrong.sum() < 0.2 * (mask > 0).sum()


@pytest.mark.parametrize(("site", "name"), [("Drishti-GS", "drishtiGS_001"), ("REFUGE", "g0001")])
def test_photographs_are_cropped_to_a_square_around_the_disc(prepared: Path, site: str, name: str):
    _, mask = read(prepared, site, name)
    rows, columns = np.nonzero(mask)
    assert mask.shape[0] == mask.shape[1] == pytest.approx(2.5 * 53, abs=4)
    assert rows.mean() == pytest.approx(mask.shape[0] / 2, abs=1)
    assert columns.mean() == pytest.approx(mask.shape[1] / 2, abs=1)


def test_a_stereo_photograph_stays_one_image_with_two_views(prepared: Path):
    """D18: the paper's "dual" site."""
    image, mask = read(prepared, "RIM-ONE", "N-1-L")
    assert mask.shape == (HEIGHT, 2 * WIDTH)
    left, right = anatomy(0)[0], (anatomy(0)[0][0] + 8 + WIDTH, *anatomy(0)[0][1:])
    assert ((mask > 0) == (inside(left, 2 * WIDTH) | inside(right, 2 * WIDTH))).all()
    green = image[..., 1].astype(float)
    assert ((green > 90) != (mask > 0)).sum() < 0.2 * (mask > 0).sum()
    data = tomllib.loads((prepared / "experiment.toml").read_text())["data"]
    assert data == {"source": str(prepared), "size": 256, "classes": {"disc": [128, 255], "cup": [255]}}


def test_views_can_be_split_into_two_images_of_one_case(published: Path, tmp_path: Path, fedce):
    out = tmp_path / "out"
    preparing.prepare("fundus", published, out, lambda message: None)
    result = fedce("data", "prepare", "fundus", "--source", published, "--out", out, "--split-views")
    assert result.exit_code == 0, result.output
    names = sorted(path.stem for path in (out / "RIM-ONE" / "images").iterdir())
    assert names == ["G-12-R__left", "N-1-L__left", "N-1-L__right"], "what was made whole is made again"
    left, right = (read(out, "RIM-ONE", f"N-1-L__{view}") for view in ("left", "right"))
    assert left[1].shape == right[1].shape == (HEIGHT, WIDTH)
    assert np.nonzero(right[1])[1].mean() - np.nonzero(left[1])[1].mean() == pytest.approx(8)
    data = tomllib.loads((out / "experiment.toml").read_text())["data"]
    assert data["case_pattern"] == "(.+?)(?:__.*)?"


@pytest.mark.parametrize(
    ("split", "what"),
    [
        (False, "no disc is drawn in the right view, which counts as background; --split-views leaves it out"),
        (True, "no disc is drawn in the right view; only the other one is used"),
    ],
)
def test_a_view_without_contours_is_said(published: Path, tmp_path: Path, split: bool, what: str):
    said = []
    preparing.prepare("fundus", published, tmp_path / "out", said.append, split_views=split)
    assert f"RIM-ONE, G-12-R: {what}" in said


def test_views_are_of_fundus_alone(fedce):
    result = fedce("data", "prepare", "prostate", "--split-views")
    assert result.exit_code == 2
    assert "--split-views is for fundus" in result.stderr


def test_more_than_half_of_the_experts_decide():
    votes = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]], bool)
    assert majority(list(votes)).tolist() == [True, True, False, False]


def contour(photograph: np.ndarray, circle: Circle, stop: int = 360) -> np.ndarray:
    column, row, radius = circle
    copy = Image.fromarray(photograph)
    box = (column - radius, row - radius, column + radius, row + radius)
    ImageDraw.Draw(copy).arc(box, 0, stop, fill=(0, 0, 255), width=3)
    return np.asarray(copy)


def test_a_cup_whose_line_touches_the_disc_is_told_from_it():
    disc, cup = (120, 90, 42), (130, 90, 32)
    clean = photo(disc, cup)
    found = disc_and_cup(clean, contour(contour(clean, disc), cup))
    assert found is not None
    for mask, circle in zip(found, (disc, cup), strict=True):
        assert (mask != inside(circle)).sum() < 0.1 * inside(circle).sum()


def test_a_line_that_is_not_closed_is():
    disc, cup = (120, 90, 42), (120, 90, 25)
    clean = photo(disc, cup)
    found = disc_and_cup(clean, contour(contour(clean, disc, stop=340), cup, stop=300))
    assert found is not None
    for mask, circle in zip(found, (disc, cup), strict=True):
        assert (mask != inside(circle)).sum() < 0.1 * inside(circle).sum()


def test_the_edge_of_the_field_of_view_is_not_taken_for_the_disc():
    disc, cup, field = (120, 90, 42), (120, 90, 25), (120, 90, 86)
    clean = photo(disc, cup)
    found = disc_and_cup(clean, contour(contour(contour(clean, disc), cup), field))
    assert found is not None
    assert (found[0] != inside(disc)).sum() < 0.1 * inside(disc).sum()


@pytest.mark.parametrize("circles", [[], [(120, 90, 42)], [(120, 90, 42), (120, 90, 2)]])
def test_a_single_contour_or_a_speck_is_not_taken_for_a_cup(circles: list[Circle]):
    clean = drawn_into = photo((120, 90, 42), (120, 90, 25))
    for circle in circles:
        drawn_into = contour(drawn_into, circle)
    assert disc_and_cup(clean, drawn_into) is None


def test_an_expert_whose_contours_are_missing_does_not_vote(tmp_path: Path):
    riga(tmp_path)
    folder = tmp_path / "RIGA" / "MESSIDOR"
    save(photo(*anatomy(3)), folder / "image3-2.tif")
    said = []
    preparing.prepare("fundus", tmp_path, tmp_path / "out", said.append)
    assert "MESSIDOR, MESSIDOR_image3: the contours of expert 2 can't be recognised; this expert does not vote" in said
    assert radius(read(tmp_path / "out", "MESSIDOR", "MESSIDOR_image3")[1] > 0) == pytest.approx(26, abs=1)
    for expert in (1, 3):
        save(photo(*anatomy(3)), folder / f"image3-{expert}.tif")
    with pytest.raises(DataError, match="for only 3 of 6 experts"):
        preparing.prepare("fundus", tmp_path, tmp_path / "out", said.append)


def test_an_expert_who_is_missing_is_listed(tmp_path: Path):
    riga(tmp_path)
    (tmp_path / "RIGA" / "Magrabia" / "MagrabiaMale" / "image1-4.tif").unlink()
    summary = preparing.prepare("fundus", tmp_path, tmp_path / "out", lambda message: None)
    (site,) = (site for site in summary.sites if site.source.site == "Magrabia")
    assert site.unmatched == ("MagrabiaMale/image1prime.tif: no expert 4 of case 'MagrabiaMale_image1'",)
    assert [path.name for path in (tmp_path / "out" / "Magrabia" / "images").iterdir()] == ["MagrabiaMale_image10.png"]
    recorded = json.loads((tmp_path / "out" / "prepared.json").read_text())["sites"]["Magrabia"]
    assert recorded["unmatched"] == list(site.unmatched)


@pytest.mark.parametrize("centre", [(30, 30), (120, 90), (215, 160)])
def test_a_crop_stays_inside_the_photograph(centre: tuple[int, int]):
    disc = inside((*centre, 15))
    rows, columns = square_around(disc, 2.5)
    assert rows.start >= 0
    assert columns.start >= 0
    assert rows.stop - rows.start == columns.stop - columns.start == round(2.5 * 31)
    assert disc[rows, columns].sum() == disc.sum()
    assert disc[square_around(disc, 100)].shape == (HEIGHT, HEIGHT)


def spoil_file(root: Path) -> str:
    path = root / "REFUGE" / "Training400" / "Glaucoma" / "g0001.jpg"
    path.write_bytes(path.read_bytes()[:2000])
    return "can't read the image"


def spoil_size(root: Path) -> str:
    path = root / "REFUGE" / "Annotation-Training400" / "Disc_Cup_Masks" / "Glaucoma" / "g0001.bmp"
    save(np.zeros((HEIGHT, HEIGHT)), path)
    return "is 240x180 pixels, its mask 180x180; expected the same size"


def spoil_mask(root: Path) -> str:
    path = root / "REFUGE" / "Annotation-Training400" / "Disc_Cup_Masks" / "Glaucoma" / "g0001.bmp"
    save(np.full((HEIGHT, WIDTH), 255), path)
    return "its mask shows no disc"


@pytest.mark.parametrize("spoil", [spoil_file, spoil_size, spoil_mask])
def test_a_spoilt_case_is_one_line_and_the_others_are_made(tmp_path: Path, fedce, spoil):
    refuge(tmp_path)
    preparing.prepare("fundus", tmp_path, tmp_path / "out", lambda message: None)
    line = spoil(tmp_path)
    result = fedce("data", "prepare", "fundus", "--source", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "... 1 cases could not be used" in result.stderr
    (said,) = [line for line in result.stderr.splitlines() if not line.startswith("... ")]
    assert said.startswith("fedce: REFUGE, case 'g0001': ")
    assert line in said
    assert len(list((tmp_path / "out" / "REFUGE" / "images").iterdir())) == 3
    refuge(tmp_path)
    result = fedce("data", "prepare", "fundus", "--source", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert len(list((tmp_path / "out" / "REFUGE" / "images").iterdir())) == 4


def test_a_call_that_was_cut_off_is_completed_to_the_same_bytes(
    published: Path, prepared: Path, tmp_path: Path, monkeypatch
):
    written = []

    def counting(path, content, write=preparing.write_bytes):
        if len(written) == 7:  # In the middle of a case: its image is there, its mask is not.
            raise KeyboardInterrupt
        written.append(path)
        write(path, content)

    out = tmp_path / "out"
    monkeypatch.setattr(preparing, "write_bytes", counting)
    with pytest.raises(KeyboardInterrupt):
        preparing.prepare("fundus", published, out, lambda message: None)
    monkeypatch.undo()
    made = {path: path.stat().st_mtime_ns for path in written[:6]}
    preparing.prepare("fundus", published, out, lambda message: None)
    assert contents(out) == contents(prepared)
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert (out / "prepared.json").read_bytes() == (prepared / "prepared.json").read_bytes()


KILLED = """
import os, sys
from pathlib import Path
from fedce.base.config import load
from fedce.data import load_sites
from fedce.data import prepare as preparing
written = 0
def dying(path, content, write=preparing.write_bytes):
    global written
    written += 1
    if written == 8:
        os._exit(9)
    write(path, content)
preparing.write_bytes = dying
preparing.prepare("fundus", Path(sys.argv[1]), Path(sys.argv[2]), print)
"""


def test_a_killed_call_is_completed_to_the_same_bytes(published: Path, prepared: Path, tmp_path: Path):
    out = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", KILLED, published, out], capture_output=True).returncode == 9
    assert contents(out)
    preparing.prepare("fundus", published, out, lambda message: None)
    assert contents(out) == contents(prepared)
    assert (out / "prepared.json").read_bytes() == (prepared / "prepared.json").read_bytes()


def test_the_experiment_loads_and_keeps_the_views_of_an_eye_together(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    drishti(tmp_path / "source")
    disc, cup = anatomy(1)
    other = [(column + 8, row, radius) for column, row, radius in (disc, cup)]
    group = tmp_path / "source" / "RIM-ONE r3" / "Healthy"
    images = tmp_path / "source" / "Drishti-GS1_files" / "Training"
    for case in range(8):
        save(np.hstack([photo(disc, cup), photo(*other)]), group / "Stereo Images" / f"N-{case}-L.jpg")
        for what, left, right in (("Disc", disc, other[0]), ("Cup", cup, other[1])):
            save(255 * np.hstack([inside(left), inside(right)]), group / "Average_masks" / f"N-{case}-L-{what}-Avg.png")
        name = f"drishtiGS_{10 + case:03d}"
        save(photo(disc, cup), images / "Images" / f"{name}.png")
        for what, circle in (("ODseg", disc), ("cupseg", cup)):
            save(255 * inside(circle), images / "GT" / name / "SoftMap" / f"{name}_{what}Softmap.png")
    out = tmp_path / "out"
    preparing.prepare("fundus", tmp_path / "source", out, lambda message: None, split_views=True)
    eyes = load_sites(load(out / "experiment.toml", {"data.size": 64}).data)
    assert [site.name for site in eyes] == ["Drishti-GS", "RIM-ONE"]
    assert eyes[1].images.shape == (16, 3, 64, 64)
    parts = {name: set(getattr(eyes[1].split, name).tolist()) for name in ("train", "validation", "test")}
    for members in parts.values():
        assert {i ^ 1 for i in members} == members, "names are sorted, so views of an eye stand side by side"


def test_the_table_tells_what_is_missing(tmp_path: Path, fedce):
    refuge(tmp_path)
    result = fedce("data", "prepare", "fundus", "--source", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    rows = {line.split("│")[1].strip(): line for line in result.stdout.splitlines() if line.count("│") > 3}
    assert [cell.strip() for cell in rows["REFUGE"].split("│")[2:6]] == ["4", "1200", "4", "0"]
    assert "missing" in rows["MESSIDOR"]
    assert "fedce run" in result.stderr


def test_the_guide_says_where_to_get_everything(fedce):
    result = fedce("data", "prepare", "fundus")
    assert result.exit_code == 0
    for source in preparing.sources_of("fundus"):
        assert source.url in result.stdout
        assert source.licence in result.stdout


@pytest.mark.parametrize("task", ["prostate", "fundus"])
def test_the_page_on_public_data_says_the_same(task: preparing.Task):
    page = (Path(__file__).parents[2] / "docs" / "public-data.md").read_text()
    for source in preparing.sources_of(task):
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{source.site}` |"))
        assert source.licence in row
        assert f"| {source.published} |" in row
        assert source.url.split(" ")[0] in page
