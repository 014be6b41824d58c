"""The documentation: its code runs, its pictures are what their code draws, and the README says it in a minute.

Blocks with ``>>>`` are run as doctests (``docs`` is one of pytest's test paths); the others are run here.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

from conftest import REPOSITORY
from hardmax.cli import main

DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def _blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_every_kind_of_block_is_one_that_is_run_or_only_read():
    """Code without >>> is run in the gallery only; scale.md speaks of files, clusters and a GPU that no test has."""
    for page in PAGES:
        kinds = set(re.findall(r"^```(\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        run = {"pycon", "console", "text"} | ({"python"} if page.name == "gallery.md" else set())
        assert kinds <= run or page.name == "scale.md", (page.name, kinds - run)


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
