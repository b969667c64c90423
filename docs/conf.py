"""How Sphinx builds the guide: `python -m sphinx -W docs BUILD_DIRECTORY`."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

project = "keras_transformer"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]  # the cards of the first page
myst_heading_anchors = 3  # links to headings, as on GitHub
default_role = "code"  # `name` in a docstring is code
autodoc_member_order = "bysource"
autodoc_mock_imports = ["ctranslate2"]
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
html_theme = "furo"
html_title = "keras_transformer"
html_theme_options = {"top_of_page_buttons": []}
html_static_path = ["_static"]
html_css_files = ["guide.css"]
html_show_sphinx = False
html_show_copyright = False
html_show_sourcelink = False


COLON = "\0"  # a colon that napoleon does not see


def hide_colons(app, what, name, obj, options, lines):
    """Keeps napoleon from reading the text before a colon as the type of an attribute."""
    if what == "attribute":
        lines[:] = [line.replace(":", COLON) for line in lines]


def use_rst_blocks(app, what, name, obj, options, lines):
    """Turns the Markdown code blocks of docstrings into those of reStructuredText."""
    text = re.sub(
        r"```python\n(.*?)\n```",
        lambda block: "::\n\n" + "\n".join(f"    {line}" for line in block[1].splitlines()),
        "\n".join(lines).replace(COLON, ":"),
        flags=re.DOTALL,
    )
    lines[:] = text.split("\n")


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", hide_colons, priority=1)  # before napoleon
    app.connect("autodoc-process-docstring", use_rst_blocks, priority=1000)  # after napoleon
