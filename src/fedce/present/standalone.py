"""What each site reaches alone: from a run of Standalone on the same data."""

from collections.abc import Mapping, Sequence

from fedce.base.errors import RunError
from fedce.record.folder import RunFolder
from fedce.record.verify import checked


def dice_alone(run: RunFolder, standalone: RunFolder) -> dict[str, float]:
    """Each site's Dice when it trained alone; refused where the comparison would be of two different things."""
    results = checked(standalone).results
    if (algorithm := results["algorithm"]) != "standalone":
        raise RunError(
            f"--standalone: {standalone.path} is a run of {algorithm}; "
            "'fedce run --algorithm standalone' makes one to compare with"
        )
    ours, theirs = run.ledger().fingerprints, standalone.ledger().fingerprints
    for site in sorted(ours.keys() | theirs.keys()):
        if ours.get(site) != theirs.get(site):
            what = "is not in it" if site not in theirs else "is only there" if site not in ours else "has other data"
            raise RunError(
                f"--standalone: {standalone.path} is not on the same data as {run.path}: site {site!r} {what}; "
                "run Standalone on the same images with the same splits"
            )
    return {site: float(dice) for site, dice in results["dice"].items()}


def sentence(
    dice: Mapping[str, float], alone: Mapping[str, float], intervals: Mapping[str, Sequence[float] | None]
) -> str:
    """Who would do better without the federation, as far as the intervals over test cases show it."""
    higher = [site for site, value in dice.items() if alone[site] > value]
    better = [site for site in higher if (ends := intervals.get(site)) and alone[site] > ends[1]]
    said = "No site does better alone by more than its interval."
    if better:
        said = f"Better off alone, by more than their interval: {_named(better, dice, alone)}."
    if level := [site for site in higher if site not in better]:
        said += f" Higher alone, but no difference that this run can show: {_named(level, dice, alone)}."
    return said


def _named(sites: Sequence[str], dice: Mapping[str, float], alone: Mapping[str, float]) -> str:
    return ", ".join(f"{site} ({alone[site]:.3f} alone, {dice[site]:.3f} here)" for site in sites)
