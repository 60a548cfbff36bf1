"""Sphinx configuration: the guide from ``docs/*.md``, the reference from docstrings. ``make docs`` runs it.

The sources are plain Markdown that also reads well on a code host. The sidebar follows the lists of links in the
``index.md`` files: each ``##`` heading is a caption, each list item that links to a page is an entry.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_extensions")]

import shmarrow  # noqa: E402

project = "shmarrow"
author = "the shmarrow contributors"
copyright = author
version = release = shmarrow.__version__
REPOSITORY = "https://github.com/shmarrow/shmarrow"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "reference"]
exclude_patterns = ["README.md"]
needs_sphinx = "8.1"
nitpicky = False

# --- Markdown ---

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_links_external_new_tab = False

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[([^\]]+)\]\((?!https?:)([^)#]+)\.md\)", re.MULTILINE)


def toctrees(text: str) -> str:
    """The hidden toctrees of an index page: one for each section that lists pages."""
    head, *rest = _SECTION.split(text)
    sections = [("", head), *zip(rest[::2], rest[1::2], strict=True)]
    parts = []
    for caption, body in sections:
        entries = [f"{title} <{page}>" for title, page in _ENTRY.findall(body)]
        if entries:
            options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
            parts.append("\n".join(["```{toctree}", *options, "", *entries, "```", ""]))
    return "\n".join(parts)


def _add_toctrees(app: Any, docname: str, source: list[str]) -> None:
    if docname.rpartition("/")[2] == "index":
        source[0] += "\n" + toctrees(source[0])


# --- the reference ---

DOCUMENTED_ELSEWHERE = (
    *("Array", "ExtensionArray", "ListArray", "ListViewArray", "DataType", "ExtensionType", "FixedWidthType"),
    *("BinaryType", "EncodedType", "ListType", "ListViewType", "SparseTensor", "SparseMatrix", "RecordBatchReader"),
    *("RecordBatchFileWriter", "object", "tuple", "dict", "ndarray", "Mapping", "Protocol", "Generic", "Exception"),
    *("BaseException", "BufferError", "FileExistsError", "FileNotFoundError", "ImportError", "IndexError", "KeyError"),
    *("LookupError", "NotImplementedError", "OSError", "TypeError", "ValueError", "Dataset", "IterableDataset"),
)
"""Bases whose members are not repeated in the classes derived from them: they are on their own, or not ours."""

autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "show-inheritance": True,
    "inherited-members": ", ".join(DOCUMENTED_ELSEWHERE),
    "member-order": "bysource",
}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_use_param = True
napoleon_preprocess_types = False
default_role = "code"

# --- HTML ---

html_theme = "furo"
html_title = f"shmarrow {release}"
html_static_path = ["_static"]
html_favicon = "_static/logo.svg"
html_logo = "_static/logo.svg"
html_css_files = ["shmarrow.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_theme_options = {
    "source_repository": REPOSITORY + "/",
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["view"],
    "light_css_variables": {
        "color-brand-primary": "#0b6e75",
        "color-brand-content": "#0b6e75",
        "color-brand-visited": "#5b4a9c",
        "color-api-name": "#0b6e75",
        "color-api-pre-name": "#5f6b7a",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5cc8cf",
        "color-brand-content": "#6fd3d9",
        "color-brand-visited": "#b6a7f0",
        "color-api-name": "#6fd3d9",
        "color-api-pre-name": "#9aa6b2",
    },
}


def setup(app: Any) -> None:
    """Connect the hooks."""
    app.connect("source-read", _add_toctrees)
