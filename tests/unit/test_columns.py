"""The sites' table is one list of columns, shown at three places."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from fedce.present import columns, pages
from fedce.present.columns import Column, Note, of, sites_table
from fedce.present.results import metrics_tables, results_table
from fedce.present.worth import worth_sentences
from fedce.questions.compare import Row, shares_table

RESULTS = {
    "algorithm": "fedce",
    "data": "somewhere",
    "rounds": 3,
    "images": {"north": 12, "south": 30},
    "train_images": {"north": 8, "south": 20},
    "dice": {"north": 0.75},
    "dice_interval": {"north": None},
    "dice_by_class": {"north": {"disc": 0.8, "cup": 0.7}},
    "dice_without": {"north": None},
    "contributions": {"north": 0.25, "south": 0.75},
    "intervals": {"low": {"north": None, "south": 0.7}, "high": {"north": None, "south": 0.8}},
    "validation_cases": {"north": 2, "south": 6},
    "test_cases": {"north": 1, "south": 8},
    "flags": {"south": ["zero update in round 2", "noise in round 3"]},
}
SITES = ["north", "south"]


def titles(results: dict, place: columns.Place) -> list[str]:
    return [title for title, _ in sites_table(results, place, SITES).titles]


GAINS = {"alone": {"north": 0.5}, "gain": {"north": 0.25}, "gain_interval": {"north": [0.1, 0.3]}}


def cell(place: columns.Place, title: str, site: str, **changes) -> columns.Cell:
    table = sites_table({**RESULTS, **changes}, place, SITES)
    return table.rows[SITES.index(site)][[name for name, _ in table.titles].index(title)]


def test_each_place_shows_its_columns():
    assert titles(RESULTS, "terminal") == ["site", "images", "Dice", "Dice\nwithout", "contribution"]
    everything = ["Site", "Contribution", "Images", "Dice", "disc", "cup", "Dice without it", "Flags"]
    assert titles(RESULTS, "report") == everything
    with_alone = titles({**RESULTS, **GAINS}, "report")
    assert with_alone == [*everything[:6], "Alone", "Gain", "Flags"]
    assert titles({**RESULTS, **GAINS}, "terminal") == ["site", "Dice", "alone", "gain", "contribution"]
    one_class = {**RESULTS, "dice_by_class": {"north": {"disc": 0.8}}}
    assert titles(one_class, "report") == [name for name in everything if name not in ("disc", "cup")]


WORTH = {
    "share": {"north": 0.9, "south": 0.1},
    "low": {"north": 0.8, "south": 0.0},
    "high": {"north": 1.0, "south": 0.2},
}


def test_what_a_site_gives_stands_beside_what_it_needs():
    results = {**RESULTS, "worth": {**WORTH, "signal": 1.0}}
    assert titles(results, "report")[:3] == ["Site", "Gives", "Needs (contribution)"]
    assert titles(results, "shares") == ["site", "gives", "needs (contribution)"]
    assert titles(results, "terminal") == ["site", "images", "Dice", "Dice\nwithout"]
    assert titles({**results, "algorithm": "fedavg"}, "report")[2] == "Contribution"
    assert cell("report", "Gives", "north", worth=results["worth"]).note == Note("80 to 100 %", "80-100")
    assert titles({**RESULTS, "worth": {"share": None, "reason": "too few sites"}}, "report")[1] == "Contribution"


def test_words_say_who_gives_and_who_needs_only_if_that_is_shown():
    results = {**RESULTS, "worth": {**WORTH, "signal": 1.0}}
    assert worth_sentences(results) == [
        "north gives most to the others: 90 % (95 % interval 80 to 100 %) of all that is given.",
        "Gives more than it needs: north (gives 90 %, needs 25 %).",
        "Needs more than it gives: south (gives 10 %, needs 75 %).",
    ]
    wide = {**results["worth"], "low": {"north": 0.1, "south": 0.0}, "high": {"north": 1.0, "south": 0.9}}
    assert "can't show that it gives more" in worth_sentences({**results, "worth": wide})[0]
    assert len(worth_sentences({**results, "worth": wide})) == 1
    assert "can't be told" in worth_sentences({**results, "worth": {**wide, "signal": 0.1}})[0]
    none = worth_sentences({**results, "worth": {"share": None, "reason": "too few sites"}})
    assert none == ["What each site gives to the others was not measured: too few sites."]
    assert worth_sentences(RESULTS) == []


def test_a_run_that_goes_on_has_no_test_dice_yet():
    last = {f"last_{key}": {"north": 0.5} for key in ("score", "weight", "loss", "seconds")}
    so_far = {**last, "train_images": RESULTS["train_images"], "contributions": {"north": 0.5}, "flags": {}}
    going_on = ["Site", "Contribution", "Training images", "Validation Dice", "Weight", "Loss", "Seconds", "Flags"]
    assert titles(so_far, "live") == going_on
    assert titles({**so_far, **RESULTS}, "live") == [*going_on[:5], "Test Dice", *going_on[5:]]
    assert [one.text for one in sites_table(so_far, "live", SITES).rows[1]] == [
        *("south", "\N{EN DASH}", "20", "\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}", "none")
    ]


def test_volumes_are_counted_as_volumes():
    of_volumes = {**RESULTS, columns.COUNTED: "volumes"}
    assert titles(of_volumes, "terminal")[1] == "volumes"
    assert "Volumes" in titles(of_volumes, "report")
    last = {f"last_{key}": {} for key in ("score", "weight", "loss", "seconds")}
    assert "Training volumes" in titles({**of_volumes, **last}, "live")


def test_a_new_column_is_seen_at_every_place_that_it_names(monkeypatch: pytest.MonkeyPatch):
    new = Column({"terminal": "HD95", "report": "HD95", "live": "HD95"}, of("hd95"), "{:.1f} mm".format)
    before = columns.columns
    monkeypatch.setattr(columns, "columns", lambda results: [*before(results), new])
    results = {**RESULTS, "hd95": {"north": 4.25}}
    console = Console(width=100, file=StringIO())
    console.print(results_table(results, 100, "fedce"))
    template = pages._environment().get_template("sites.html.j2").module
    last = {f"last_{key}": {} for key in ("score", "weight", "loss", "seconds")}
    on_pages = [template.sites_table(sites_table({**results, **last}, place, SITES)) for place in ("report", "live")]
    for shown in (console.file.getvalue(), *on_pages):
        assert "HD95" in shown
        assert "4.2 mm" in shown


def test_a_metric_has_a_column_with_its_unit_its_direction_and_what_is_undefined():
    measured = {
        "metrics": {"dice": {"north": 0.75}, "iou": {"north": 0.625}, "depth": {"north": None}},
        "metrics_undefined": {"iou": {"north": {"disc": 0, "cup": 0}}, "depth": {"north": {"disc": 4, "cup": 3}}},
        "metrics_unit": {"iou": {"north": ""}, "depth": {"north": "mm"}},
    }
    assert titles({**RESULTS, **measured}, "terminal") == titles(RESULTS, "terminal")
    assert titles({**RESULTS, **measured}, "metrics") == ["site", "IoU (higher is better)", "depth, mm"]
    assert cell("metrics", "IoU (higher is better)", "north", **measured) == columns.Cell("0.625", "number", None, None)
    assert cell("metrics", "depth, mm", "north", **measured).text == "-"
    assert cell("metrics", "depth, mm", "north", **measured).note == Note("undefined in 7", "7 undef.")
    assert cell("metrics", "IoU (higher is better)", "south", **measured).text == "-", "absent at the end"
    console = Console(width=80, file=StringIO())
    console.print(*metrics_tables({**RESULTS, **measured}, 80))
    assert "- (7 undef.)" in console.file.getvalue()
    assert metrics_tables(RESULTS, 80) == []


def test_what_is_not_known_is_a_dash_or_said():
    assert cell("terminal", "Dice", "south").text == cell("report", "Dice", "south").text == "absent"
    assert cell("terminal", "Dice\nwithout", "north").text == "-"
    assert cell("report", "Dice without it", "north").text == "\N{EN DASH}"
    assert cell("report", "Gain", "north", **GAINS).text == "+0.250"
    assert cell("report", "Gain", "north", **GAINS).note == Note("+0.100 to +0.300", "+.10 +.30")
    assert cell("report", "Gain", "south", **GAINS).text == "\N{EN DASH}"


def test_an_interval_stands_beside_its_value_or_the_reason_why_there_is_none():
    assert cell("report", "Contribution", "south").note == Note("70.0 to 80.0 %", "70.0-80.0")
    assert cell("report", "Contribution", "north").note == Note("no interval: 2 cases, 5 needed", "2 cases")
    assert cell("report", "Dice", "north").note == Note("no interval: 1 case, 5 needed", "1 case")
    assert cell("report", "Dice", "north", dice_interval={"north": [0.7, 0.8]}).note == Note(
        "0.700 to 0.800", ".70-.80"
    )
    assert cell("report", "Dice", "south").note is None, "there is no Dice"
    # Enough cases are not why there is no interval; without a part in any round there is nothing to explain.
    enough = {"validation_cases": {"north": 6}}
    assert cell("terminal", "contribution", "north", **enough).note == Note("no interval", "no interval")
    assert cell("terminal", "contribution", "north", intervals={"low": {}, "high": {}}).note is None


def test_bars_are_parts_of_the_largest_value():
    parts = [
        cell("live", "Contribution", site, last_score={}, last_weight={}, last_loss={}, last_seconds={}).part
        for site in SITES
    ]
    assert parts == [pytest.approx(1 / 3), 1]
    nothing = cell("report", "Contribution", "north", contributions=dict.fromkeys(SITES, 0.0))
    assert (nothing.text, nothing.part) == ("0.0 %", 0)


def test_a_comparison_shows_what_is_given_with_its_interval():
    row = Row(
        "fedce",
        dice={"north": 0.8, "south": 0.7},
        dice_std={},
        dice_by_seed={},
        dice_by_class={},
        mean=0.75,
        std_over_sites=0.1,
        worst=0.7,
        jain=1.0,
        gini=0.0,
        contributions={"north": 0.25, "south": 0.75},
        standalone_pearson=None,
        standalone_pearson_p=None,
        standalone_euclid=None,
        gain={},
        truth_pearson=None,
        truth_pearson_p=None,
        truth_spearman=None,
        truth_euclid=None,
        truth_cosine=None,
        rank_tau=None,
        seconds=1.0,
        megabytes=1.0,
        worth={"north": 0.9},
        worth_low={"north": 0.8},
        worth_high={"north": 1.0},
        worth_is_told=False,
    )
    assert shares_table([row]).cells == [
        ["fedce, gives (who gives most can't be told)", "90.0 (80 to 100)", "-"],
        ["fedce, needs", "25.0", "75.0"],
    ]
    fedavg = replace(row, algorithm="fedavg", title="FedAvg", worth_is_told=True)
    assert [cells[0] for cells in shares_table([fedavg]).cells] == ["FedAvg, gives", "FedAvg, contribution"]
