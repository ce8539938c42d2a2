"""The model card: what a model is, where it comes from, and what it must not be used for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedce.algorithms.titles import printed_name
from fedce.base.config import Config
from fedce.base.files import read_tensors
from fedce.base.tables import BUILT_IN
from fedce.data.shape import counted_as, in_words, spacing_of
from fedce.present.columns import classes_of
from fedce.present.meanings import meanings_of_shares
from fedce.present.worth import is_about_needs, shares_given, vote_lines, worth_sentences
from fedce.record.entries import DataFacts
from fedce.record.folder import RunFolder

FEW_CASES = 10
"""The Dice of a site with fewer test cases is rough."""
RESIZED = {"stretch": "stretched", "pad": "scaled and padded", "crop": "scaled and cropped"}


def model_card(run: RunFolder, results: Mapping[str, Any], data: Mapping[str, DataFacts]) -> list[tuple[str, str]]:
    """Questions and answers; `data` are the sites' facts from the ledger's start."""
    config = run.config
    return [
        ("What it is", _network(run, config, results)),
        ("What goes in and comes out", _input(run, config, results)),
        ("What it was trained on", _training(config, results)),
        ("How it was evaluated", _evaluation(config, results, data)),
        *_shares(results),
        ("What it is for", "Research: to study federated training, and what each site contributes and gains."),
        ("What it is not for", "Diagnosis or treatment. No authority has approved it and no clinical study was made."),
        ("What is not known", " ".join(_limits(config, results, data))),
    ]


def _network(run: RunFolder, config: Config, results: Mapping[str, Any]) -> str:
    model = config.model
    kind = f"a U-Net with {', '.join(map(str, model.channels))} channels and {model.norm} norm"
    kind = kind if model.name == "unet" else f"the network {model.name}"
    whose = "a model of its own for each site" if _own_models(run) else "one for all sites"
    return f"{kind[0].upper()}{kind[1:]}, {results['n_parameters']:,} trained parameters; {whose}."


def _input(run: RunFolder, config: Config, results: Mapping[str, Any]) -> str:
    classes = ", ".join(classes_of(results))
    out = f"A mask for each class comes out: {classes}."
    file = next((path for path in (run.model_file, *_own_models(run)) if path.exists()), None)
    if file is None:
        return f"The model is no longer in the run folder. {out}"
    n_channels, *size = read_tensors(file)[1]["shape"]
    channels = "1 channel" if n_channels == 1 else f"{n_channels} channels"
    if len(size) == 3:
        return f"Volumes of {channels} go in, {_resampled(config)}, in windows of {in_words(size)}. {out}"
    height, width = size
    return (
        f"Images of {width} x {height} pixels and {channels} go in; images of other sizes are "
        f"{RESIZED[config.data.resize]} to this size. {out}"
    )


def _resampled(config: Config) -> str:
    spacing = spacing_of(config.data)
    if spacing is None:
        return "as they are"
    return f"resampled to {' x '.join(f'{mm:g}' for mm in spacing)} mm between slices, rows and columns"


def _own_models(run: RunFolder) -> list[Path]:
    return sorted(run.site_model_file("").parent.glob("*.safetensors"))


def _training(config: Config, results: Mapping[str, Any]) -> str:
    trained = {site: n for site, n in results["train_images"].items() if site not in config.leave_out}
    sentences = [
        f"{sum(trained.values())} training {counted_as(config.data)} of {len(trained)} sites: {', '.join(trained)}.",
        f"The method is {printed_name(config.algorithm)}, for {results['rounds']} rounds.",
    ]
    if results["data"] in BUILT_IN:
        sentences.append(f"A program drew the {counted_as(config.data)}; they show no patients.")
    if config.leave_out:
        sentences.append(f"Left out of training: {', '.join(config.leave_out)}.")
    if plant := config.freerider.plant:
        cheats = ", ".join(f"{site} ({kind})" for site, kind in plant.items())
        sentences.append(f"Free riders were planted on purpose: {cheats}.")
    return " ".join(sentences)


def _evaluation(config: Config, results: Mapping[str, Any], data: Mapping[str, DataFacts]) -> str:
    dice = results["dice"]
    by_site = ", ".join(f"{site} {value:.3f}" for site, value in dice.items())
    n_test = sum(data[site].n_test for site in dice)
    # Ledgers of earlier versions count images alone.
    n_cases = sum(data[site].n_test_cases for site in dice)
    cases = f" of {n_cases} cases" if n_cases not in (0, n_test) else ""
    worst = min(dice, key=dice.__getitem__)
    return (
        f"Dice on {n_test} test {counted_as(config.data)}{cases} that took no part in training, from the same sites: "
        f"{by_site}; mean {results['fairness']['mean']:.3f}, worst {dice[worst]:.3f} at {worst}."
    )


def _shares(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What each site gives and needs, if it was measured."""
    if not (given := shares_given(results)):
        return []
    needs, worth = results["contributions"], results["worth"]
    both = ", ".join(
        f"{site} {100 * share:.0f} ({100 * worth['low'][site]:.0f} to {100 * worth['high'][site]:.0f}) and "
        f"{100 * needs[site]:.0f} %"
        for site, share in given.items()
    )
    defined = [f"{name}: {what}" for name, what in meanings_of_shares(results, gives=True)]
    question = f"What each site gives, and {'what it needs' if is_about_needs(results) else 'its contribution'}"
    said = [f"{both}; in brackets the 95 % interval of what it gives.", *worth_sentences(results), *vote_lines(results)]
    return [(question, " ".join([*said, *defined]))]


def _limits(config: Config, results: Mapping[str, Any], data: Mapping[str, DataFacts]) -> list[str]:
    sentences = ["It is not known how well the model works at other sites, or with another camera or scanner."]
    by_class = {(site, name): v for site, found in results["dice_by_class"].items() for name, v in found.items()}
    (site, name), lowest = min(by_class.items(), key=lambda item: item[1])
    if len(classes_of(results)) > 1:
        sentences.append(f"A mean over classes hides weak ones: {name} at {site} has a Dice of {lowest:.3f}.")
    n_cases = {site: data[site].n_test_cases or data[site].n_test for site in results["dice"]}
    few = [f"{site} ({n})" for site, n in n_cases.items() if n < FEW_CASES]
    if few:
        sentences.append(f"The Dice of sites with fewer than {FEW_CASES} test cases is rough: {', '.join(few)}.")
    if results["data"] in BUILT_IN:
        sentences.append("The model was never tested on images of patients.")
    return sentences
