"""What the site makes of the repository while it is built: the explorer, and pages from notebooks."""

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def on_files(files, config):
    """Add the explorer, written now, and one page for each notebook."""
    from mkdocs.structure.files import File

    from hardmax.show.explorer.page import explorer_html

    files.append(File.generated(config, "live_explorer.html", content=explorer_html()))
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        page = as_page(json.loads(notebook.read_text(encoding="utf-8")), notebook.name)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=page))
    return files


def as_page(notebook, name):
    """A notebook as Markdown, its cells in order."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join([*parts, f"*The notebook itself: docs/notebooks/{name}; the tests run it.*"]) + "\n"


def on_post_page(output, page, config):
    """Nothing is fetched from elsewhere: the one script that the theme would ask for is left out."""
    return re.sub(r'<script src="https?://[^"]*"></script>', "", output)


def on_post_template(output_content, template_name, config):
    """The same for the page of what was not found."""
    return on_post_page(output_content, None, config)
