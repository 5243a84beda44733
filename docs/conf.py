"""Settings of the site. `make docs` builds it from the Markdown files of the repository, which stay where they are."""

import re
from typing import Any

from sphinx.application import Sphinx

import erda

project = "erda"
copyright = author = "the erda authors, Apache-2.0"
version = release = erda.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**", "*.md", "packages/*/README.md"]
include_patterns += [f"{folder}/README.md" for folder in ("benchmarks", "examples", "research")]
exclude_patterns = ["results/**", "paper.md"]
myst_heading_anchors = 3  # links to headings as on a code host: page.md#a-heading
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure"]  # blocks of csv and ann have no lexer

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "undoc-members": True, "exclude-members": "__new__, __init__"}
autodoc_class_signature = "separated"
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"erda {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["static/index.html"]  # the address of the site leads to docs/index.html
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def _code_in_docstrings(*event: Any) -> None:
    """Docstrings write code as `code`; reStructuredText wants two backticks."""
    lines = event[-1]
    lines[:] = [re.sub(r"(?<![`:])`([^`]+)`(?!`)", r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Connect the hook."""
    app.connect("autodoc-process-docstring", _code_in_docstrings)
