"""What stands out in a federation's data, in plain words: for the terminal, the page and the study of the data."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from fedce.data.duplicates import FEWEST_IMAGES, Usual
from fedce.data.inspection import Inspection

FEW_CASES = 10
"""The Dice of a site with fewer test cases is rough."""


def summary(found: Inspection) -> list[str]:
    """What stands out in the data, in whole sentences."""
    n_images, n_cases = (sum(getattr(site, key) for site in found.sites) for key in ("n_images", "n_cases"))
    sentences = [f"Recognised: {found.recognised}."] if found.recognised else []
    sentences += [
        f"{len(found.sites)} sites with {n_images} {found.counted} of {n_cases} cases.",
        most_different(found),
    ]
    if partly := [
        f"{site.name} ({', '.join(site.areas)})" for site in found.sites if len(site.areas) < len(found.classes)
    ]:
        sentences.append(f"Sites that label only some of the classes: {', '.join(partly)}.")
    sentences += [_near_duplicates(found), *not_judged(found.usual)]
    empty = [
        f"{n} of {site.n_shown} at {site.name}" + (f" ({name})" if len(site.areas) > 1 else "")
        for site in found.sites
        for name, n in site.n_empty.items()
        if n
    ]
    volumes = [site for site in found.sites if site.spacing]
    if volumes:
        slices = ", ".join(f"{site.n_shown} of {site.n_images} at {site.name}" for site in volumes)
        sentences.append(f"Slices with something marked: {slices}. A volume is scored on all its slices.")
    if negative := [f"{site.n_marked_nothing} at {site.name}" for site in volumes if site.n_marked_nothing]:
        sentences.append(f"Volumes in which nothing is marked: {', '.join(negative)}.")
    elif not empty:
        sentences.append("Every mask marks something.")
    if empty:
        what = "marked slices and images without one of the classes" if volumes else "masks that mark nothing"
        sentences.append(f"{what.capitalize()}: {', '.join(empty)}.")
    few = [f"{site.name} ({site.n_test_cases})" for site in found.sites if site.n_test_cases < FEW_CASES]
    if few:
        sentences.append(
            f"Sites with fewer than {FEW_CASES} test cases, whose Dice is therefore rough: {', '.join(few)}."
        )
    return sentences + [f"{said.found}; if so, add {said.option}" for said in found.advice]


def most_different(found: Inspection) -> str:
    far = int(found.mean_distances.argmax())
    others = np.delete(np.delete(found.distances, far, 0), far, 1)
    if len(others) == 1:
        one, other = found.sites
        return f"The grey values of {one.name} and {other.name} lie {found.distances[0, 1]:.1f} levels of 255 apart."
    among = others.sum() / (len(others) * (len(others) - 1))
    return (
        f"{found.sites[far].name} looks most different: its grey values lie {found.mean_distances[far]:.1f} levels of "
        f"255 from those of the other sites, on average; the other sites' lie {among:.1f} levels from each other."
    )


def _near_duplicates(found: Inspection) -> str:
    n = len(found.duplicates)
    if not n:
        return "No two cases are near-duplicates."
    where = Counter(
        "in two sites" if pair.across_sites else "in two splits of a site" if pair.across_splits else "in one split"
        for pair in found.duplicates
    )
    pairs = "1 pair of cases looks nearly the same" if n == 1 else f"{n} pairs of cases look nearly the same"
    return f"{pairs}: {', '.join(f'{count} {place}' for place, count in sorted(where.items()))}."


def not_judged(usual: Sequence[Usual]) -> Iterator[str]:
    """Sites where near-duplicates could not be searched for, or less well than elsewhere."""
    if few := [f"{site.site} ({site.n_images})" for site in usual if not site.details]:
        yield (
            f"Sites with too few images (below {FEWEST_IMAGES}) or cases to know how alike their images usually are: "
            f"{', '.join(few)}. There only copies are found, not frames of one scene."
        )
    if blank := [f"{site.n_without_details} at {site.site}" for site in usual if site.n_without_details]:
        yield f"Images without details to compare, whose near-duplicates are not found: {', '.join(blank)}."
