"""What the documentation says is what the code does."""

import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import fedce
from fedce.cli import main
from fedce.core.messages import Member, Reply
from fedce.site.wire import FingerprintForm, MemberForm, ReplyForm

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_readmes_example_works_as_printed(tmp_path: Path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"site{i}" for i in range(1, 7)]
    shares = [float(re.search(r"contributed ([\d.]+) %", line)[1]) for line in lines]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert (tmp_path / "contributions.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "runs" / "fundus6-fedce-0" / "report.html").exists()


def test_the_page_about_python_works_as_printed(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for example in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text("utf-8"), re.S):
        exec(compile(example, "docs/python.md", "exec"), names)
    said = capsys.readouterr().out
    assert said.startswith("<Result of runs/fundus6-fedce-0: fedce on fundus6, 10 rounds")
    assert "did you mean 'train'?" in said
    assert set(names["result"].intervals) == set(names["result"].contributions)
    assert {path.name for path in tmp_path.iterdir()} >= {"plan.toml", "first.png", "contributions.png", "new-hospital"}


def test_the_page_about_python_names_every_function_and_what_it_gives():
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    for name in set(fedce.__all__) - {"__version__", "FedAvg", "Standalone", "Uniform"}:
        assert re.search(rf"(fedce\.|`|\.){name}\b", page), name
    for name in [name for name in vars(fedce.Result) if not name.startswith("_")]:
        assert re.search(rf"\b{name}\b", page), name


def test_the_readme_fits_a_screen_before_its_first_heading_of_detail():
    first = README.split("\n## ")[0]
    assert len(first.splitlines()) <= 45
    for word in ("make demo", "make test", "```python", "!["):
        assert word in first


def test_the_commands_in_the_readme_exist():
    used = set(re.findall(r"^fedce (\w+)", README, re.M))
    assert used <= set(main.commands)


def test_make_test_is_what_ci_runs():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "\nmake test\n" in script
    assert "\nmake check\n" in script


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    headings = re.findall(r"^#+ (.+)$", prose, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_a_heading_lead_to_one(page: Path):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8")):
        assert anchor in anchors_of(page.parent / target if target else page), f"{target}#{anchor}"


def test_the_index_lists_every_page():
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\]\(([^)#]+)\)", index))


def test_the_configuration_page_is_up_to_date():
    spec = spec_from_file_location("configuration_page", ROOT / "tools" / "configuration_page.py")
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.page() == tool.PAGE.read_text("utf-8"), "run tools/configuration_page.py"


TEXTS = [
    path
    for pattern in (
        "*.md",
        "src/**/*.py",
        "docs/**/*.md",
        "examples/**/*",
        "tests/**/*.py",
        "benchmarks/*",
        "deploy/**/*",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.is_file() and path.suffix in (".md", ".py", ".ipynb", ".toml", ".sh", ".yaml")
]


def test_install_commands_work_from_the_repository():
    """fedce is in no package index: an install by its name would fail, or bring something else of that name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for path in TEXTS:
        text = path.read_text("utf-8")
        for command in re.findall(r"pip install[^\n`]*", text):
            assert not re.search(r"install (?:.* )?'?fedce\b(?!\.)", command), f"{path}: {command}"
        for named in re.findall(r"-e '\.\[([\w,-]+)\]'", text) + re.findall(r"install_command\(['\"]([\w-]+)", text):
            assert set(named.split(",")) <= extras.keys(), f"{path}: {named}"


def test_every_field_of_a_reply_has_a_row_in_the_privacy_table():
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", (ROOT / "docs" / "privacy.md").read_text("utf-8"), re.M)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == {field.name for kind in (Reply, Member) for field in fields(kind)}


def test_nothing_else_goes_over_a_network():
    """The forms of what a site sends, beside what the privacy page lists; the rest says which task is answered."""
    sent = {name for form in (MemberForm, FingerprintForm, ReplyForm) for name in form.model_fields}
    listed = {field.name for kind in (Reply, Member) for field in fields(kind)}
    assert sent - listed == {"kind", "run", "nonce", "action", "model", "received", "key", "versions"}


def test_the_tests_named_for_each_decision_exist():
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in ("paper.md", "baselines.md")]
    named = set(re.findall(r"`(test_\w+)`", "".join(pages)))
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    }
    assert len(named) > 15
    assert named <= written


def test_decisions_cited_in_the_code_are_explained():
    explained = set(re.findall(r"^\| (D\d+) \|", (ROOT / "docs" / "paper.md").read_text("utf-8"), re.M))
    explained |= set(re.findall(r"^\| (B\d+) ", (ROOT / "docs" / "baselines.md").read_text("utf-8"), re.M))
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert {d[1:-1] for d in re.findall(r"\([BD]\d+\)", code)} | set(re.findall(r"\bD\d+\b", code)) <= explained


def modules_after(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import fedce", "import fedce.cli"])
def test_imports_stay_light(statement):
    heavy = {"torch", "monai", "matplotlib", "scipy", "flwr", "nvflare", "PIL"}
    assert not heavy & modules_after(statement)


def test_algorithms_need_no_torch():
    assert "torch" not in modules_after("import fedce; fedce.FedCE()")


def test_public_names_are_few_and_documented():
    functions = {name for name in fedce.__all__ if name[0].islower()}
    assert functions == {"compare", "load", "load_sites", "plan", "run", "value"}
    assert len(fedce.__all__) <= 21, "the functions, what they return, and what they take"
    for name in set(fedce.__all__) - {"__version__"}:
        assert getattr(fedce, name).__doc__, name
    assert set(fedce.__all__) - {"__version__"} == set(fedce._HOME)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedce.nothing  # noqa: B018


def test_help_names_every_option(fedce):
    text = fedce("run", "--help").output
    for option in (
        "--algorithm",
        "--data",
        "--scale",
        "--rounds",
        "--seed",
        "--workers",
        "--out",
        "--set",
        "--json",
        "--resume",
    ):
        assert option in text
