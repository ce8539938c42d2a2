"""Python as the data scientist in a notebook uses it: run, run again, load, ask."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import fedce as package
from fedce.base.errors import ConfigError, DataError, RunError
from fedce.data.drawn import write_site
from fedce.federation.session import Observer
from fedce.learning.segmenter import Segmenter
from fedce.present.following import Step
from fedce.present.notebook import Notebook, NotebookJobs, NotebookRun
from fedce.questions.jobs import Progress
from fedce.questions.loading import Which, load_model
from fedce.record.folder import RunFolder

SMALL = {"recipe": "small", "model.channels": [4, 8], "engine.workers": 1}


@pytest.fixture(scope="module")
def sites():
    return package.load_sites("fundus6", scale="tiny")


@pytest.fixture(scope="module")
def result(sites, tmp_path_factory):
    return package.run(sites, rounds=4, out=tmp_path_factory.mktemp("python") / "run", settings=SMALL, progress=False)


def ledger_of(folder: Path) -> str:
    return (folder / "ledger.jsonl").read_text()


def test_the_default_folder_is_the_command_lines(sites, tmp_path: Path, monkeypatch, fedce):
    monkeypatch.chdir(tmp_path)
    by_python = package.run(sites, "fedavg", rounds=1, seed=3, settings=SMALL, progress=False)
    assert by_python.folder == Path("runs/fundus6-fedavg-3")
    again = fedce("run", "--algorithm", "fedavg", "--seed", 3, "--rounds", 1, "--scale", "tiny")
    assert again.exit_code == 2
    assert "runs/fundus6-fedavg-3 already holds a run" in again.stderr


def test_the_same_call_again_loads_the_finished_run(result, sites):
    before = ledger_of(result.folder)
    seen = []
    observer = Observer(notice=seen.append, round=seen.append)
    again = package.run(sites, rounds=4, out=result.folder, settings=SMALL, progress=observer)
    assert again.values == result.values
    assert ledger_of(result.folder) == before
    assert seen == [f"{result.folder} is finished; nothing to do"]


def test_the_same_call_again_goes_on_with_an_unfinished_run_to_the_same_bits(result, sites, tmp_path: Path):
    def stop(done):
        if done.round_no == 1:
            raise KeyboardInterrupt

    settings = {**SMALL, "engine.checkpoint_seconds": 0}
    with pytest.raises(KeyboardInterrupt):
        package.run(sites, rounds=4, out=tmp_path / "cut", settings=settings, progress=Observer(round=stop))
    assert not (tmp_path / "cut" / "results.json").exists()
    rounds = []
    observer = Observer(round=lambda done: rounds.append(done.round_no))
    went_on = package.run(sites, rounds=4, out=tmp_path / "cut", settings=settings, progress=observer)
    assert rounds == [2, 3]
    assert went_on.contributions == result.contributions
    assert went_on.values["model_sha256"] == result.values["model_sha256"]
    assert went_on.report.exists()


def test_another_run_in_the_folder_is_named_and_kept(result, sites):
    before = ledger_of(result.folder)
    with pytest.raises(
        RunError, match=r"holds another run: there rounds is 4, here 5; .*replace=True, or .*--rounds 5"
    ):
        package.run(sites, rounds=5, out=result.folder, settings=SMALL, progress=False)
    with pytest.raises(RunError, match=r"there train\.lr is 0\.001, here 0\.5"):
        package.run(sites, rounds=4, out=result.folder, settings={**SMALL, "train.lr": 0.5}, progress=False)
    with pytest.raises(RunError, match=r"there algorithm\.name is 'fedce', here 'fedavg'"):
        package.run(sites, "fedavg", rounds=4, out=result.folder, settings=SMALL, progress=False)
    assert ledger_of(result.folder) == before


def test_other_data_are_not_taken_for_the_same_run(tmp_path: Path):
    for name in ("site1", "site2"):
        write_site("fundus6", name, tmp_path / "data" / name, 8)

    def run():
        return package.run(tmp_path / "data", rounds=1, out=tmp_path / "run", settings=SMALL, progress=False)

    run()
    write_site("fundus6", "site1", tmp_path / "data" / "site1", 8, seed=7)
    with pytest.raises(RunError, match="site 'site1' has other data since"):
        run()


def test_replace_trains_anew(sites, tmp_path: Path):
    def run(**options):
        return package.run(sites, out=tmp_path / "run", settings=SMALL, progress=False, **options)

    run(rounds=1)
    assert run(rounds=2, replace=True).values["rounds"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 2, "settings": {"rounds": 3}}, "settings: 'rounds' is an argument too; state it once"),
        ({"settings": {"algorithm.name": "fedavg"}}, "settings: leave out 'algorithm'; it is the argument"),
        ({"settings": {"data.source": "prostate6"}}, "settings: leave out 'data.source'; it is the argument sites"),
        ({"settings": {"data.size": 32}}, r"data.size can't change; use load_sites\(..., size=...\)"),
        ({"settings": {"trian.lr": 1}}, "unknown key 'trian', did you mean 'train'"),
    ],
)
def test_settings_that_contradict_are_one_line(arguments, message, sites, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        package.run(sites, out=tmp_path / "run", progress=False, **arguments)
    assert not (tmp_path / "run").exists()


def test_settings_may_hold_what_no_argument_states(sites, tmp_path: Path):
    settings = {**SMALL, "rounds": 1, "seed": 5, "guard": "off", "algorithm": {"max_share": 0.5}, "train": {"lr": 0.01}}
    config = package.run(sites, out=tmp_path / "run", settings=settings, progress=False).config
    assert (config.n_rounds, config.seed, config.guard, config.train.lr) == (1, 5, "off", 0.01)
    assert config.algorithm.options["max_share"] == 0.5
    assert settings["train"] == {"lr": 0.01}, "the caller's settings are not changed"


def test_a_folder_may_be_given_with_keys_of_data(tmp_path: Path):
    for name in ("site1", "site2"):
        write_site("fundus6", name, tmp_path / "data" / name, 8)
    settings = {**SMALL, "data.size": 32, "data.classes": {"disc": [128, 255], "cup": [255]}}
    config = package.run(
        str(tmp_path / "data"), rounds=1, out=tmp_path / "run", settings=settings, progress=False
    ).config
    assert (config.data.size, list(config.data.classes)) == (32, ["disc", "cup"])


def test_tables_are_records(result, sites):
    values = result.values
    assert [row["site"] for row in result.sites] == [f"site{i}" for i in range(1, 7)]
    for row in result.sites:
        site = row["site"]
        assert row["dice"] == values["dice"][site] == result.dice[site]
        assert row["contribution"] == result.contributions[site]
        assert (row["worth"], row["worth_low"], row["worth_high"]) == tuple(
            values["worth"][key][site] for key in ("share", "low", "high")
        )
    assert result.worth == values["worth"]["share"]
    assert result.intervals == {}
    assert any("intervals need at least 10" in sentence for sentence in result.sentences)
    assert len(result.rounds) == 4 * 6
    last = [row for row in result.rounds if row["round"] == 4]
    assert {row["site"]: row["contribution"] for row in last} == pytest.approx(result.contributions)
    cases = [row["dice"] for row in result.cases if row["site"] == "site1"]
    assert len(cases) == 2 * 2, "two test cases of two classes"
    assert np.mean(cases) == pytest.approx(result.dice["site1"])
    json.dumps([result.sites, result.rounds, result.cases])


def test_load_gives_the_same(result, tmp_path: Path):
    assert package.load(str(result.folder)).values == result.values
    with pytest.raises(RunError, match="there is no folder"):
        package.load(tmp_path / "none")


def test_a_result_with_intervals(sites, tmp_path: Path):
    ours = package.run(sites, rounds=10, out=tmp_path / "run", settings=SMALL, progress=False)
    found = ours.values["intervals"]
    for site, ends in ours.intervals.items():
        assert ends == (None if found["low"][site] is None else (found["low"][site], found["high"][site]))
    assert set(ours.intervals) == {f"site{i}" for i in range(1, 7)}


def test_the_model_gives_what_the_learner_predicts(result, sites):
    model = result.model()
    assert not model.training
    images = sites[1].images
    with torch.inference_mode():
        found = model(torch.tensor(images)) > 0
    expected = load_model(RunFolder(result.folder), Which(device="cpu")).learner.predict(images)
    assert (found.numpy() == expected).all()
    assert found.any()
    loss = model(torch.tensor(images[:2])).square().mean()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.network.parameters()), "it can be trained further"


def test_the_model_of_the_best_round_is_another(result):
    last, best = (result.model(best=best).network.state_dict() for best in (False, True))
    stored = package.load(result.folder)
    assert (stored.values["best_round"] == 4) == all(torch.equal(last[name], best[name]) for name in last)
    with pytest.raises(RunError, match=r"leave out --site \(in Python: site\)"):
        result.model("site1")


def test_a_site_has_its_own_model_where_norms_stay_at_the_sites(sites, tmp_path: Path):
    settings = {**SMALL, "model.norm": "site"}
    ours = package.run(sites, rounds=2, out=tmp_path / "run", settings=settings, progress=False)
    common, own = ours.model().network.state_dict(), ours.model("site5").network.state_dict()
    assert any(not torch.equal(common[name], own[name]) for name in common)
    images = sites[4].images
    adapted = ours.predict(images[:4], adapt=True)
    plain = ours.predict(images[:4])
    assert any((a.labels != b.labels).any() for a, b in zip(adapted, plain, strict=True))


def test_a_model_of_volumes_gives_what_the_learner_predicts(tmp_path: Path):
    volumes = package.load_sites(
        "volume6", scale="tiny", sites=["site1", "site4"], patch=(8, 16, 16), spacing=(6, 6, 6)
    )
    settings = {"recipe": "small", "model.channels": [4, 8], "train.patches": 1, "engine.workers": 1}
    ours = package.run(volumes, "fedavg", rounds=1, out=tmp_path / "run", settings=settings, progress=False)
    model, learner = ours.model(), load_model(RunFolder(ours.folder), Which(device="cpu")).learner
    assert isinstance(model, Segmenter)
    site = volumes[1]
    (stack, *_) = site.stacks(site.split.test)
    images = np.array(stack.of(site.images))
    for one in (images, images[:4, :, :10, :12]):  # The second is smaller than a patch.
        with torch.inference_mode():
            found = model(torch.tensor(np.ascontiguousarray(one)).movedim(0, 1)[None]) > 0
        expected = learner.predict(np.ascontiguousarray(one))
        assert (found[0].movedim(0, 1).numpy() == expected).mean() > 0.999, "sums in another order may move a voxel"
    with pytest.raises(DataError, match="is a 2-D image, and the model was trained on volumes"):
        ours.predict(np.zeros((32, 32), np.uint8))


def test_arrays_give_what_their_files_give(result, tmp_path: Path):
    folder = write_site("fundus6", "site1", tmp_path / "new", 3, size=64) / "images"
    files = sorted(folder.iterdir())
    arrays = [np.asarray(Image.open(file)) for file in files]
    stacked = np.stack(arrays).transpose(0, 3, 1, 2)
    by_file = result.predict(folder)
    assert [one.name for one in by_file] == ["000", "001", "002"]
    assert any(one.labels.any() for one in by_file)
    several = ([str(file) for file in files], arrays, stacked, torch.tensor(stacked), [Image.open(f) for f in files])
    for given in several:
        found = result.predict(given)
        assert [one.labels.shape for one in found] == [(64, 64)] * 3
        assert all((a.labels == b.labels).all() for a, b in zip(found, by_file, strict=True))
    (only,) = result.predict(arrays[0])
    assert (only.labels == by_file[0].labels).all()
    assert not (tmp_path / "runs").exists(), "nothing is written"


def test_a_segmentation_is_saved_as_fedce_predict_saves_it(result, tmp_path: Path, fedce):
    file = write_site("fundus6", "site1", tmp_path / "new", 1) / "images" / "000.png"
    assert fedce("predict", result.folder, file, "--out", tmp_path / "masks").exit_code == 0
    (found,) = result.predict(file)
    assert found.save(tmp_path / "ours.png").read_bytes() == (tmp_path / "masks" / "000.png").read_bytes()
    assert np.array_equal(np.asarray(found.picture), np.asarray(Image.open(tmp_path / "masks" / "000-overlay.png")))
    with pytest.raises(ConfigError, match=r"written to a file that ends in \.png"):
        found.save(tmp_path / "ours.nii.gz")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((20, 48, 48), np.uint8), r"got shape \(20, 48, 48\). Give several images as a list"),
        (np.zeros((2, 2, 2, 2, 2), np.uint8), "expected an image"),
        (5, "expected an image, a path, or a list of them, got int"),
        ([], "expected an image, a path, or a list of them, got list"),
        (["no-such.png"], "no-such.png"),
        (["a.png", np.zeros((48, 48))], "expected arrays alone or paths alone"),
        (np.full((48, 48), np.nan), "image 0"),
        (np.array([["a"]]), "image 0"),
    ],
)
def test_images_that_cannot_be_segmented_are_one_line(result, images, message):
    with pytest.raises(DataError, match=message):
        result.predict(images)


def test_evaluate_is_what_the_command_measures(result, tmp_path: Path, fedce):
    folder = write_site("fundus6", "site4", tmp_path / "new-hospital", 6)
    found = result.evaluate(folder)
    said = fedce("evaluate", result.folder, folder, "--out", tmp_path / "out", "--json")
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)["sites"]["new-hospital"]["metrics"]["dice"]
    mean = next(row for row in found.records if row["class"] == "mean")
    assert mean["dice"] == told["mean"]
    assert [mean["dice_low"], mean["dice_high"]] == told["interval"]
    assert {"hd95", "surface_dice_low", "volume_difference"} <= set(mean)
    assert len(found.cases) == 6 * 2
    assert found._repr_html_().count("<tr>") == 1 + 3


def test_compare_and_value_are_those_of_the_command_line(sites, tmp_path: Path, monkeypatch, fedce):
    monkeypatch.chdir(tmp_path)
    settings = {"recipe": "small", "model.channels": [4, 8]}
    found = package.compare(sites, ["fedavg", "fedce"], seeds=[0, 1], rounds=2, settings=settings, progress=False)
    options = ("--set", "model.channels=[4,8]", "--json")
    asked = ("--algorithms", "fedavg,fedce", "--seeds", "0,1", "--scale", "tiny", "--rounds", 2)
    said = fedce("compare", *asked, *options)
    assert said.exit_code == 0, said.output
    assert (
        json.loads(said.stdout)["rows"] == json.loads(found.save("ours").joinpath("compare.json").read_text())["rows"]
    )
    assert len(list(Path("runs/store").iterdir())) == 4, "no training is repeated"
    assert [row["algorithm"] for row in found.summary] == ["fedavg", "fedce"]
    assert len(found.records) == 2 * 6
    assert "fedavg" in found._repr_html_().lower()

    ours = package.run(sites, rounds=2, settings=settings, progress=False)
    report = ours.report.read_text("utf-8")
    worth = package.value(ours, "reconstruction", progress=False)
    assert json.loads((ours.folder / "value-reconstruction.json").read_text())["values"] == worth.values
    assert ours.report.read_text("utf-8") != report, "the report shows the values"
    assert worth.records[0]["contribution"] == pytest.approx(ours.contributions["site1"])
    assert worth._repr_html_().count("<tr>") == 1 + 6


def test_questions_that_cannot_be_asked_are_one_line(sites, result):
    with pytest.raises(ConfigError, match="expected at least one algorithm and one seed"):
        package.compare(sites, [], progress=False)
    with pytest.raises(ConfigError, match="unknown method 'lou', did you mean 'loo'"):
        package.value(result, "lou")


def test_a_plan_is_what_run_trains(sites, tmp_path: Path):
    settings = {"train.lr": 0.01, "model.channels": [4, 8], "engine.workers": 1}
    found = package.plan(sites, settings=settings)
    config = package.run(sites, rounds=1, out=tmp_path / "run", settings=settings, progress=False).config
    planned = {key: value for key, value in found.settings.items() if key not in ("rounds", "personalise")}
    for key, value in planned.items():
        table, _, name = key.partition(".")
        assert json.loads(json.dumps(getattr(getattr(config, table), name))) == value, key
    assert found.save(tmp_path / "plan.toml").read_text().startswith("# Made by fedce plan from 6 sites")
    with pytest.raises(ConfigError, match="exists already"):
        found.save(tmp_path / "plan.toml")
    assert all(row["reason"] for row in found.records)
    assert "train.loss" in found._repr_html_()
    assert "train.lr" not in found.settings


def test_a_plan_of_a_name_or_of_fingerprints_is_the_same(tmp_path: Path, fedce, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = []
    for site in ("site1", "site2"):
        files.append(tmp_path / f"{site}.json")
        options = ("--scale", "tiny", "--site", site, "--fingerprint", files[-1])
        assert fedce("plan", "fundus6", *options).exit_code == 0
    sent = package.plan(files)
    by_name = package.plan("fundus6", settings={"data": {"scale": "tiny", "sites": ["site1", "site2"]}}, progress=False)
    assert sent.settings["train.batch_size"] == by_name.settings["train.batch_size"]
    assert sent.settings["rounds"] == by_name.settings["rounds"]


def test_figures_are_shown_by_a_notebook_without_pyplot(result):
    for figure in (result.plot_contributions(), result.plot_rounds(), result.plot_dice(), result.plot_worth()):
        assert isinstance(figure, Figure)
        picture, size = figure._repr_png_()
        assert picture.startswith(b"\x89PNG")
        assert size["width"] == 8 * 72
        assert figure.get_facecolor()[:3] == (1, 1, 1)


def test_worth_that_was_not_measured_is_empty_and_says_why(sites, tmp_path: Path):
    ours = package.run(sites, "standalone", rounds=1, out=tmp_path / "run", settings=SMALL, progress=False)
    assert ours.worth == ours.worth_intervals == {}
    assert any("was not measured" in sentence for sentence in ours.sentences)
    with pytest.raises(RunError, match="what each site gives was not measured"):
        ours.plot_worth()
    assert "site1" in ours._repr_html_()


def test_names_of_sites_are_harmless_in_a_notebook(result):
    values = json.loads(json.dumps(result.values).replace("site1", "<script>x</script>"))
    shown = package.Result(result.folder, values)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_sites_show_a_table_and_no_image(sites):
    shown = sites._repr_html_()
    assert shown.count("<tr>") == 1 + 6
    assert "disc, cup" in shown
    assert "<img" not in shown
    assert "site5" in repr(sites)


def test_a_notebook_shows_a_bar_that_moves(sites, tmp_path: Path):
    written = []
    with NotebookRun(write=written.append) as display:
        observer = Observer(display.notice, display.start, display.round)
        package.run(sites, rounds=2, out=tmp_path / "run", settings=SMALL, progress=observer)
    assert '<progress value="0" max="2">' in written[0]
    assert "6 sites (site1 8, site2 14, site3 8, site4 32, site5 12, site6 56 images), 2 rounds, seed 0" in written[0]
    assert '<progress value="2" max="2">' in written[-1]
    assert "shares %" in written[-1]


def test_a_notebook_is_not_written_more_often_than_it_can_show():
    written = []
    shown = Notebook(write=written.append)
    with shown:
        for n in range(1000):
            shown.go(Step(n, 1000, ""))
    assert len(written) < 100
    assert 'value="999"' in written[-1], "the last step is shown"


def test_a_notebook_shows_many_trainings():
    written = []
    with NotebookJobs(write=written.append) as display:
        display.notice("4 trainings")
        display.progress(Progress(0, 4, 0, 40))
        display.progress(Progress(1, 4, 12, 40))
    assert "4 trainings" in written[-1]
    assert '<progress value="12" max="40">' in written[-1]
    assert "trainings 1/4, rounds 12/40" in written[-1]


def test_a_script_shows_progress_on_stderr(sites, tmp_path: Path, capsys):
    package.run(sites, rounds=2, out=tmp_path / "run", settings=SMALL)
    shown = capsys.readouterr()
    assert "round 2/2" in shown.err
    assert shown.out == ""


def test_no_progress_is_silent(sites, tmp_path: Path, capsys):
    package.run(sites, rounds=1, out=tmp_path / "run", settings=SMALL, progress=False)
    assert capsys.readouterr() == ("", "")
