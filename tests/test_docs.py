"""The documentation: its code runs, its pictures are what their code draws, and the README says it in a minute.

Blocks with ``>>>`` are run as doctests (``docs`` is one of pytest's test paths); the others are run here.
"""

import json
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest

import hardmax as hm
from conftest import REPOSITORY
from hardmax.cli import main
from hardmax.networks.library import random_relu_network
from hardmax.runs import resources

DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def _blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_every_kind_of_block_is_one_that_is_run_or_only_read():
    """Code without >>> is run in the gallery and in scale.md only."""
    for page in PAGES:
        kinds = set(re.findall(r"^```(\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        also = {"gallery.md": {"python"}, "scale.md": {"python", "toml", "sql"}}
        run = {"pycon", "console", "text"} | also.get(page.name, set())
        assert kinds <= run, (page.name, kinds - run)


def test_the_readme_names_the_packages_of_the_core():
    (named,) = re.findall(r"pip install \.\s+# the core: (.*)", (REPOSITORY / "README.md").read_text(encoding="utf-8"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert named.split(", ") == [re.match(r"\w+", one).group() for one in project["dependencies"]]


@pytest.mark.extras
def test_the_code_of_the_page_on_scale_runs_but_for_that_of_clusters(tmp_path, monkeypatch):
    """One seed instead of a hundred, and torch on the processor; what needs a Dask cluster is only compiled.

    The query is run in tests/runs/test_sweeps.py.
    """
    pytest.importorskip("onnx", reason="onnx, which is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")
    pytest.importorskip("torch", reason="torch, which is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(resources, "_cores", lambda: 1)  # starting a process costs more than this work
    rng = np.random.default_rng(0)
    keys = rng.integers(-3, 4, size=(6, 3)).astype(float)
    hm.write(random_relu_network([2, 8, 3], rng=rng), "model.onnx")
    (plan,) = _blocks(DOCS / "scale.md", "toml")
    (tmp_path / "plan.toml").write_text(plan.replace("seeds = 100", "seeds = 1"), encoding="utf-8")
    space = {"queries": keys, "keys": keys, "weights": keys, "bias": np.zeros(6)}
    of_clusters = 0
    for block in _blocks(DOCS / "scale.md", "python"):
        code = compile(block.replace('"cuda"', '"cpu"'), "scale.md", "exec")
        if "client = " in block:
            of_clusters += 1
        else:
            exec(code, space)
    assert of_clusters == 2
    assert hm.load_cells("cells").n_cells == hm.count_cells(space["net"], hm.Box([-1, -1], [1, 1])) > 1
    assert len(hm.sweep("plan.toml", out="swept").columns["n_cells"]) == 8  # done already: read again


def test_pictures_of_the_gallery_are_what_their_code_draws():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```\n\n!\[[^\]]*\]\(([^)]*)\)", page, re.DOTALL | re.MULTILINE)
    assert len(found) == page.count("```python") == 5
    for code, name in found:
        space: dict = {}
        exec(code, space)
        drawn = re.search(r"<svg.*?</svg>", space["picture"], re.DOTALL)[0]
        assert (DOCS / name).read_text(encoding="utf-8") == drawn + "\n", name


@pytest.mark.parametrize("notebook", sorted(path.name for path in (DOCS / "notebooks").glob("*.ipynb")))
def test_notebooks_run_and_show_something(notebook):
    cells = json.loads((DOCS / "notebooks" / notebook).read_text(encoding="utf-8"))["cells"]
    space: dict = {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        *before, last = "".join(cell["source"]).rsplit("\n", 1)
        exec("".join(before), space)
        assert eval(last, space) is not None
        assert cell["outputs"] == []


def test_commands_in_the_documentation_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = [line[2:] for page in PAGES for block in _blocks(page, "console") for line in block.splitlines()]
    assert commands and all(command.startswith("hardmax ") for command in commands)
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command
    capsys.readouterr()


def test_the_readme_is_short_and_begins_with_a_sentence_and_a_picture():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) < 150 and lines[0] == "# hardmax"
    picture = re.search(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert (REPOSITORY / picture[1]).exists() and text.index(picture[0]) < text.index("make report") < text.index("## ")
    version = re.search(r'__version__ = "(.*)"', (REPOSITORY / "src/hardmax/version.py").read_text())[1]
    assert f"version: {version}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")


def test_every_question_of_the_index_of_how_tos_has_its_page():
    index = (DOCS / "howto" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in (DOCS / "howto").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == pages


def test_links_between_pages_lead_somewhere():
    made = {DOCS / "live_explorer.html", *(path.with_suffix(".md") for path in (DOCS / "notebooks").glob("*.ipynb"))}
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                place = Path(page.parent, target).resolve()
                assert place.exists() or place in made, f"{page.name}: {target}"
