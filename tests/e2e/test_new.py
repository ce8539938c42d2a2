"""The first hour of a federation: fedce new, what it writes, and fedce doctor --server at a hospital."""

import json
import re
import ssl
import stat
import tomllib
from pathlib import Path

import pytest
import yaml

from fedce.base.config import load
from fedce.base.identity import Identity
from fedce.questions import at_site
from support import HOSPITALS, write_site
from tls import served


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for site in HOSPITALS:
        write_site(root, site, n=16)
    return root


@pytest.fixture(scope="module")
def consortium(tmp_path_factory, data: Path, fedce) -> Path:
    """For a server on this machine, planned from the fingerprints that the hospitals sent."""
    folder = tmp_path_factory.mktemp("consortium")
    files = [folder / f"{site}.json" for site in HOSPITALS]
    for site, file in zip(HOSPITALS, files, strict=True):
        assert fedce("plan", data, "--site", site, "--fingerprint", file).exit_code == 0
    made = fedce("new", "heart", *files, "--server", "localhost:9093", "--out", folder / "heart")
    assert made.exit_code == 0, made.output
    assert "begin with" in made.stderr
    return folder / "heart"


def test_the_experiment_is_planned_with_reasons_and_can_be_deployed(consortium: Path, fedce, tmp_path: Path):
    text = (consortium / "experiment.toml").read_text("utf-8")
    assert "# the median site makes" in text
    config = load(consortium / "experiment.toml", {})
    assert (config.engine.name, list(config.engine.members)) == ("flower", list(HOSPITALS))
    deployed = fedce("deploy", "flower", consortium / "experiment.toml", "--out", tmp_path / "app")
    assert deployed.exit_code == 0, deployed.output


def test_secrets_are_private_and_stay_with_the_coordinator(consortium: Path):
    own = consortium / "coordinator"
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((own / name).stat().st_mode) == 0o600
    sent = [file for file in (consortium / "hospitals").rglob("*") if file.is_file()]
    assert {file.name for file in sent} == {"README.md", "ca.pem", "experiment.toml", "versions.txt"}
    assert not any("PRIVATE" in file.read_text("utf-8") for file in sent)
    context = ssl.create_default_context(cafile=own / "ca.pem")
    assert [one["subject"] for one in context.get_ca_certs()] == [((("commonName", "heart"),),)]


def test_the_pages_name_every_member_the_server_and_commands_that_exist(consortium: Path, fedce):
    pages = [consortium / "README.md", *sorted((consortium / "hospitals").glob("*/README.md"))]
    ports = []
    for page in pages:
        text = page.read_text("utf-8")
        assert "localhost:9093" in text
        for command in re.findall(r"^ *fedce (\w+)", text, re.M):
            assert fedce(command, "--help").exit_code == 0, command
        ports += re.findall(r"--port (909[4-9])", text)
    assert ports == ["9094", "9095", "9096"], "a second SuperNode on one machine needs a port of its own"


def doctor(fedce, consortium: Path, site: str, port: int, *more: object):
    folder = consortium / "hospitals" / site
    return fedce("doctor", folder / "experiment.toml", "--server", f"localhost:{port}", "--site", site, *more, "--json")


def test_a_hospital_checks_before_anybody_waits(consortium: Path, data: Path, tmp_path: Path, fedce):
    key = tmp_path / "home" / "key.pem"
    with served(consortium / "coordinator") as port:
        first = doctor(fedce, consortium, "north", port, "--data", data / "north", "--key", key)
        assert first.exit_code == 2
        problems = [one for one in json.loads(first.stdout)["findings"] if one["verdict"] == "problem"]
        assert [one["what"] for one in problems] == ["key"]
        assert problems[0]["advice"].startswith(f"'fedce keys new {key}' makes it")
        public = fedce("keys", "new", key).stdout.strip()
        second = doctor(fedce, consortium, "north", port, "--data", data / "north", "--key", key)
    assert second.exit_code == 0, second.output
    found = {one["what"]: one for one in json.loads(second.stdout)["findings"]}
    assert found["key"]["verdict"] == "warning"
    assert found["key"]["advice"] == f"send this line to the coordinator: {public}"
    expected = {"reach", "certificate", "clock", "versions", "engine", "name", "labels", "splits", "network"}
    assert expected <= found.keys()
    assert found["same versions"]["verdict"] == found["data"]["verdict"] == found["disk"]["verdict"] == "ok"
    assert found["name"]["found"] == "north is one of the 3 members"
    assert "1 site, 16 images" in found["data"]["found"]


def station(
    consortium: Path, data: Path | None, tmp_path: Path, site: str = "north", **members: str
) -> at_site.Station:
    config = load(consortium / "experiment.toml", {"engine.members": {**dict.fromkeys(HOSPITALS, ""), **members}})
    versions = consortium / "versions.txt"
    return at_site.Station(site, tmp_path / "key.pem", config, str(data / site) if data else None, versions)


def problems(one: at_site.Station) -> dict[str, str]:
    return {found.what: found.found for found in at_site.examine_site(one) if found.verdict == "problem"}


def test_what_may_be_wrong_at_a_site(consortium: Path, data: Path, tmp_path: Path):
    own = Identity.at(tmp_path / "key.pem").public
    other = Identity.at(tmp_path / "other.pem").public
    assert problems(station(consortium, None, tmp_path, north=own)) == {}
    assert problems(station(consortium, None, tmp_path, north=other)) == {
        "key": "the experiment file has another key for this site"
    }
    lost = problems(station(consortium, data, tmp_path, site="nord"))
    assert lost["name"] == "'nord' is not among the members, did you mean 'north'?"
    assert "is not a folder; name the folder of the site 'nord'" in lost["data"]
    (tmp_path / "key.pem").chmod(0o644)
    assert "others can read" in problems(station(consortium, None, tmp_path))["key"]


def test_other_versions_than_the_coordinators(consortium: Path, tmp_path: Path):
    (tmp_path / "versions.txt").write_text("fedce==99.0  # newer\n\nnot-installed==1.0\nnumpy==0.1\n")
    found = list(at_site._same_versions(tmp_path / "versions.txt"))
    assert [one.verdict for one in found] == ["problem"] * 3
    assert "the coordinator has 99.0" in found[0].found
    assert "not-installed is not installed" in found[1].found
    (tmp_path / "versions.txt").write_text("fedce\n")
    with pytest.raises(at_site.ConfigError, match="expected lines such as"):
        list(at_site._same_versions(tmp_path / "versions.txt"))


def test_a_consortium_on_nvflare_without_data(tmp_path: Path, fedce):
    made = fedce(
        *("new", "heart", "--sites", "north, south", "--server", "fl.example.org:8002", "--engine", "nvflare"),
        *("--out", tmp_path / "heart"),
    )
    assert made.exit_code == 0, made.output
    project = yaml.safe_load((tmp_path / "heart" / "coordinator" / "project.yml").read_text("utf-8"))
    kinds = [(one["name"], one["type"]) for one in project["participants"]]
    assert kinds == [
        ("fl.example.org", "server"),
        ("north", "client"),
        ("south", "client"),
        ("admin@heart.org", "admin"),
    ]
    tree = tomllib.loads((tmp_path / "heart" / "experiment.toml").read_text("utf-8"))
    assert tree["engine"]["members"] == {"north": "", "south": ""}
    page = (tmp_path / "heart" / "hospitals" / "north" / "README.md").read_text("utf-8")
    assert "--ca north/startup/rootCA.pem" in page
    assert "ssh-keygen" not in page
    deployed = fedce("deploy", "nvflare", tmp_path / "heart" / "experiment.toml", "--out", tmp_path / "job")
    assert deployed.exit_code == 0, deployed.output


def test_a_real_server_gets_a_web_server_in_front(tmp_path: Path, fedce):
    made = fedce("new", "heart", "--sites", "a,b", "--server", "fl.example.org:8443", "--out", tmp_path / "heart")
    assert made.exit_code == 0, made.output
    front = (tmp_path / "heart" / "coordinator" / "nginx.conf").read_text("utf-8")
    assert "listen 8443 ssl;" in front
    assert "proxy_pass https://127.0.0.1:9093;" in front
    assert "--port 9094" not in (tmp_path / "heart" / "hospitals" / "a" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("heart", "--server", "fl:1"), "--sites: expected two or more different names, got none"),
        (("heart", "--sites", "a,a", "--server", "fl:1"), "--sites: expected two or more different names, got a, a"),
        (
            ("heart", "--sites", "a,b;rm", "--server", "fl:1"),
            "--sites: expected letters, digits, '-' and '_', got 'b;rm'",
        ),
        (
            ("../heart", "--sites", "a,b", "--server", "fl:1"),
            "NAME: expected letters, digits, '-' and '_', got '../heart'",
        ),
        (("heart", "--sites", "a,b", "--server", "fl"), "--server: expected HOST:PORT such as"),
        (("heart", "one.json", "data", "--server", "fl:1"), "expected one folder of sites, or fingerprints"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, fedce, arguments: tuple[str, ...], line: str):
    result = fedce("new", *arguments, cwd=tmp_path)
    assert result.exit_code == 2
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, fedce):
    (tmp_path / "heart").mkdir()
    (tmp_path / "heart" / "mine.txt").touch()
    result = fedce("new", "heart", "--sites", "a,b", "--server", "fl:1", cwd=tmp_path)
    assert "heart is not empty" in result.stderr
    for arguments in (("--site", "a"), ("--server", "fl:1"), ("--server", "fl:1", "--site", "a", "--gpu")):
        assert "--server" in fedce("doctor", *arguments).stderr
