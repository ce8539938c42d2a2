"""Six public retinal data sets with optic disc and cup: Drishti-GS, RIM-ONE r3, REFUGE, and three of RIGA."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from fedce.base.errors import DataError
from fedce.data.formats import Formats
from fedce.data.pixels import Bytes, with_channels
from fedce.data.prepare.contours import Mask, disc_and_cup, levels, majority, square_around
from fedce.data.prepare.sources import Case, Found, Note, Outputs, Role, Source, by_case, files_below, pair

FORMATS = Formats()
CLASSES = {"disc": [128, 255], "cup": [255]}
CASE_PATTERN_OF_VIEWS = "(.+?)(?:__.*)?"
"""Both views of an eye are one case."""
CROP_DIAMETERS = 2.5
"""Side of the square that is kept, in disc diameters: in a whole photograph the disc has only a few pixels."""
N_EXPERTS = 6
THREE_OF_FOUR = 160
"""Between two and three quarters of 255: a soft map is the mean of four experts, and a tie is not a majority."""


def find_drishti(root: Path) -> Found:
    pictures = list(files_below(root, ".png"))
    return pair(
        root,
        {
            "image": by_case((path for path in pictures if path.parent.name == "Images"), r"(drishtiGS_\d+)\.png"),
            "disc map": by_case(pictures, r"(drishtiGS_\d+)_ODsegSoftmap\.png"),
            "cup map": by_case(pictures, r"(drishtiGS_\d+)_cupsegSoftmap\.png"),
        },
    )


def find_rim_one(root: Path) -> Found:
    stereo = (path for path in files_below(root, ".jpg") if path.parent.name == "Stereo Images")
    averages = [path for path in files_below(root, ".png") if path.parent.name == "Average_masks"]
    return pair(
        root,
        {
            "image": by_case(stereo, r"([GNS]-\d+-[LR])\.jpg"),
            "disc mask": by_case(averages, r"([GNS]-\d+-[LR])-Disc-Avg\.png"),
            "cup mask": by_case(averages, r"([GNS]-\d+-[LR])-Cup-Avg\.png"),
        },
    )


def find_refuge(root: Path) -> Found:
    masks = (path for path in files_below(root, ".bmp") if "Disc_Cup_Masks" in path.parts)
    return pair(
        root,
        {
            "image": by_case(files_below(root, ".jpg"), r"([gnVT]\d{4})\.jpg"),
            "mask": by_case(masks, r"([gnVT]\d{4})\.bmp"),
        },
    )


def find_riga(root: Path) -> Found:
    """imageNprime.* with imageN-1.* to imageN-6.* beside it; numbers start anew in every folder."""
    pictures = list(files_below(root, ".tif", ".jpg"))

    def role(ending: str) -> Role:
        return by_case(pictures, rf"(image\d+){ending}\.(?:tif|jpg)", numbered_by_folder=True)

    experts = {f"expert {i}": role(f"-{i}") for i in range(1, N_EXPERTS + 1)}
    return pair(root, {"image": role("prime"), **experts})


def convert_drishti(case: Case, note: Note) -> Outputs:
    disc, cup = (grey(case.files[role][0]) >= THREE_OF_FOUR for role in ("disc map", "cup map"))
    return cropped(case, colour(case.files["image"][0]), disc, cup)


def convert_rim_one(case: Case, note: Note) -> Outputs:
    """A stereo photograph stays one image with two views (D18), not cropped: the paper's "dual" site."""
    photo, disc, cup = stereo(case)
    for view, columns in views_of(photo).items():
        if not disc[:, columns].any():
            note(f"no disc is drawn in the {view} view, which counts as background; --split-views leaves it out")
    return encoded(case.name, photo, levels(disc, cup))


def convert_rim_one_views(case: Case, note: Note) -> Outputs:
    """Each view of a stereo photograph as an image; a view without contours has no mask, and is left out."""
    photo, disc, cup = stereo(case)
    outputs: Outputs = {}
    for view, columns in views_of(photo).items():
        if disc[:, columns].any():
            outputs |= encoded(f"{case.name}__{view}", photo[:, columns], levels(disc[:, columns], cup[:, columns]))
        else:
            note(f"no disc is drawn in the {view} view; only the other one is used")
    return outputs


def stereo(case: Case) -> tuple[Bytes, Mask, Mask]:
    """A stereo photograph with its disc and cup."""
    photo = colour(case.files["image"][0])
    disc, cup = (grey(case.files[role][0]) > 127 for role in ("disc mask", "cup mask"))
    check_size(case, photo, disc, cup)
    if not disc.any():
        raise DataError(f"{case.files['disc mask'][0]} is empty; expected the disc in it")
    return photo, disc, cup


def views_of(photo: Bytes) -> dict[str, slice]:
    """The columns of each view."""
    middle = photo.shape[1] // 2
    return {"left": slice(0, middle), "right": slice(middle, 2 * middle)}


def convert_refuge(case: Case, note: Note) -> Outputs:
    """REFUGE's values are 0 for cup, 128 for rim and 255 for background: the reverse of ours."""
    values = grey(case.files["mask"][0])
    return cropped(case, colour(case.files["image"][0]), values < 192, values < 64)


def convert_riga(case: Case, note: Note) -> Outputs:
    photo = colour(case.files["image"][0])
    votes = []
    for i in range(1, N_EXPERTS + 1):
        path = case.files[f"expert {i}"][0]
        drawn = colour(path)
        if drawn.shape != photo.shape:
            raise DataError(f"{path} is {size_of(drawn)}, its photograph {size_of(photo)}; expected a copy of it")
        if (pair_of_masks := disc_and_cup(photo, drawn)) is None:
            note(f"the contours of expert {i} can't be recognised; this expert does not vote")
        else:
            votes.append(pair_of_masks)
    if 2 * len(votes) <= N_EXPERTS:
        raise DataError(
            f"{case.files['image'][0]}: disc and cup can be recognised for only {len(votes)} of {N_EXPERTS} experts; "
            "download its files again, or move them away"
        )
    discs, cups = zip(*votes, strict=True)
    return cropped(case, photo, majority(discs), majority(cups))


def cropped(case: Case, photo: Bytes, disc: Mask, cup: Mask) -> Outputs:
    """The square around the disc."""
    check_size(case, photo, disc, cup)
    if not disc.any():
        raise DataError(f"{case.files['image'][0]}: its mask shows no disc; expected one")
    square = square_around(disc, CROP_DIAMETERS)
    return encoded(case.name, photo[square], levels(disc[square], cup[square]))


def check_size(case: Case, photo: Bytes, *masks: Mask) -> None:
    for mask in masks:
        if mask.shape != photo.shape[:2]:
            raise DataError(
                f"{case.files['image'][0]} is {size_of(photo)} pixels, its mask {size_of(mask)}; expected the same size"
            )


def size_of(array: Bytes | Mask) -> str:
    return f"{array.shape[1]}x{array.shape[0]}"


def encoded(name: str, photo: Bytes, mask: Bytes) -> Outputs:
    return {f"images/{name}.png": png(photo), f"masks/{name}.png": png(mask)}


def png(pixels: Bytes) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG")
    return buffer.getvalue()


def colour(path: Path) -> Bytes:
    return with_channels(FORMATS.file(path).image(), 3).transpose(1, 2, 0)


def grey(path: Path) -> Bytes:
    values: Bytes = with_channels(FORMATS.file(path).image(), 1)[0]
    return values


def riga(site: str, title: str, published: int, download: str, layout: str) -> Source:
    return Source(
        site=site,
        title=title,
        folder=f"RIGA/{site}",
        url="https://doi.org/10.7302/Z23R0R29",
        licence="CC BY-NC 4.0",
        download=download,
        layout=layout,
        masks="each expert's two contours filled (convex hull), then more than half of the experts who drew both",
        published=published,
        find=find_riga,
        convert=convert_riga,
        defects={},
    )


SOURCES = (
    Source(
        site="Drishti-GS",
        title="Drishti-GS1",
        folder="Drishti-GS1_files",
        url="http://cvit.iiit.ac.in/projects/mip/drishti-gs/mip-dataset2/Home.php",
        licence="see the data set's page",
        download="Drishti-GS1_files; unpack it.",
        layout="Drishti-GS1_files/Training/Images/drishtiGS_NNN.png (and Test/Images)\n"
        "Drishti-GS1_files/Training/GT/drishtiGS_NNN/SoftMap/drishtiGS_NNN_ODsegSoftmap.png (and Test/Test_GT)\n"
        "Drishti-GS1_files/Training/GT/drishtiGS_NNN/SoftMap/drishtiGS_NNN_cupsegSoftmap.png",
        masks="soft maps of four experts, where at least three of them agree",
        published=101,
        find=find_drishti,
        convert=convert_drishti,
        defects={},
    ),
    riga(
        site="BinRushed",
        title="RIGA, Bin Rushed",
        download="BinRushed.zip of the RIGA deposit; keep only the corrected folder of BinRushed1.",
        layout="RIGA/BinRushed/<folder>/imageNprime.jpg\n"
        "RIGA/BinRushed/<folder>/imageN-1.jpg to imageN-6.jpg (some are .tif)",
        published=195,
    ),
    riga(
        site="Magrabia",
        title="RIGA, Magrabi",
        download="Magrabia.zip of the RIGA deposit.",
        layout="RIGA/Magrabia/<folder>/imageNprime.tif\nRIGA/Magrabia/<folder>/imageN-1.tif to imageN-6.tif",
        published=95,
    ),
    riga(
        site="MESSIDOR",
        title="RIGA, MESSIDOR",
        download="MESSIDOR.zip of the RIGA deposit.",
        layout="RIGA/MESSIDOR/imageNprime.tif\nRIGA/MESSIDOR/imageN-1.tif to imageN-6.tif",
        published=460,
    ),
    Source(
        site="RIM-ONE",
        title="RIM-ONE r3",
        folder="RIM-ONE r3",
        url="http://medimrg.webs.ull.es/research/retinal-imaging/rim-one/",
        licence="see the data set's page",
        download="RIM-ONE r3; unpack it.",
        layout="RIM-ONE r3/{Healthy,Glaucoma and suspects}/Stereo Images/N-1-L.jpg\n"
        "RIM-ONE r3/{Healthy,Glaucoma and suspects}/Average_masks/N-1-L-Disc-Avg.png and N-1-L-Cup-Avg.png",
        masks="the published average of two experts; both views of a pair in one image; not cropped",
        published=159,
        find=find_rim_one,
        convert=convert_rim_one,
        defects={},
    ),
    Source(
        site="REFUGE",
        title="REFUGE",
        folder="REFUGE",
        url="https://refuge.grand-challenge.org",
        licence="see the challenge's rules",
        download="Images and annotations of training, validation and test (400 each); the paper used 800.",
        layout="REFUGE/Training400/{Glaucoma,Non-Glaucoma}/gNNNN.jpg (nNNNN.jpg)\n"
        "REFUGE/Annotation-Training400/Disc_Cup_Masks/{Glaucoma,Non-Glaucoma}/gNNNN.bmp\n"
        "REFUGE/REFUGE-Validation400/VNNNN.jpg with REFUGE-Validation400-GT/Disc_Cup_Masks/VNNNN.bmp\n"
        "REFUGE/Test400/TNNNN.jpg with REFUGE-Test-GT/Disc_Cup_Masks/{G,N}/TNNNN.bmp",
        masks="the published merge of seven experts",
        published=1200,
        find=find_refuge,
        convert=convert_refuge,
        defects={},
    ),
)
SOURCES_BY_VIEW = tuple(
    replace(
        source,
        masks="the published average of two experts; each view is an image, except views without contours; not cropped",
        convert=convert_rim_one_views,
    )
    if source.convert is convert_rim_one
    else source
    for source in SOURCES
)
