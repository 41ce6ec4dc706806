"""How `make docs` builds the site: Markdown pages, the API from docstrings, the gallery from examples/.

Nothing here needs the network: no inventories of other projects, no remote fonts or scripts.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

os.environ.setdefault("MPLBACKEND", "Agg")
# Examples import the modules beside them (string_kernels), as they do when they are run by hand.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

project = "svelto"
author = "The svelto developers"
copyright = author  # noqa: A001 - the name that Sphinx asks for
release = version = installed_version("svelto")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_templates", "gallery/**/*.ipynb", "gallery/**/*.py"]
templates_path = ["_templates"]
nitpicky = True
# Single quotes of docstrings name parameters, values and functions alike: what is documented becomes a link, the rest
# stays code.
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", ".*"), ("py:class", ".*")]

# -- Markdown ----------------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Pages that a benchmark writes without a title.
UNTITLED = {
    "benchmarks/exact": "The exact engine beside its rivals",
    "benchmarks/exact-tuned": "The exact engine beside its rivals, tuned machines",
}
suppress_warnings = ["myst.header"]  # their headings skip a level

# -- API ---------------------------------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"  # docstrings say it in words
autodoc_member_order = "bysource"
# Members are listed by _templates/autosummary/class.rst, with a page of their own for each class.
numpydoc_show_class_members = False

# -- gallery -----------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"[\\/]plot_",
    "ignore_pattern": r"^(?!.*plot_).*\.py$",
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("svelto",),
    "backreferences_dir": "gallery/backreferences",
    "reference_url": {"svelto": None},
    "abort_on_example_error": True,
    "write_computation_times": False,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "thumbnail_size": (400, 280),
}

# -- HTML --------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "svelto"
html_static_path = ["_static"]
html_css_files = ["svelto.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
}


def add_title(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a title above a page that has none."""
    if page in UNTITLED and not source[0].startswith("# "):
        source[0] = f"# {UNTITLED[page]}\n\n{source[0]}"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_title)
