"""The documentation hangs together: pages are reachable, links point to files, every public name is in the API.

Nothing is built here. Files under docs/gallery come from examples/plot_*.py when the site is built, so a link to one of
them is a link to the example.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import svelto

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Written by the build.
GENERATED = ("gallery", "api")
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for suffix in ("md", "rst")
    for path in DOCS.rglob(f"*.{suffix}")
    if path.relative_to(DOCS).parts[0] not in (*GENERATED, "_templates")
)
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("plot_*.py"))
# [text](target), ![text](target), and the files that a directive shows or includes.
LINK = re.compile(r"\]\(([^)\s]+)\)|^```\{(?:figure|include|image)\}\s+(\S+)", re.MULTILINE)
FENCE = re.compile(r"^```(?!\{).*?^```$", re.MULTILINE | re.DOTALL)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def links_of(text: str) -> list[str]:
    """Targets of links in Markdown, without those in code."""
    text = FENCE.sub("", text)
    return [target or shown for target, shown in LINK.findall(text) if "://" not in target and target[:1] != "#"]


def source_of(page: Path, target: str) -> Path:
    """The file that a link of a page needs: itself, or the example that it is made of."""
    path = Path(os.path.normpath(page.parent / target.split("#", maxsplit=1)[0]))
    made = re.fullmatch(r"gallery/(?:images/sphx_glr_)?(plot_\w+?)(?:_\d{3}\.png|\.rst)", _within_docs(path))
    if made:
        return ROOT / "examples" / f"{made[1]}.py"
    return ROOT / "examples" / "GALLERY_HEADER.rst" if _within_docs(path) == "gallery/index.rst" else path


def _within_docs(path: Path) -> str:
    return path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else ""


def listed_by(page: str) -> list[str]:
    """Pages in the toctrees of a page, without their suffix, relative to docs/."""
    entries = []
    for body in TOCTREE.findall((DOCS / page).read_text()):
        for line in body.splitlines():
            if line.strip() and not line.startswith(":"):
                titled = re.fullmatch(r".*<(.+)>", line.strip())
                entries.append(titled[1] if titled else line.strip())
    return [os.path.normpath(Path(page).parent / entry) for entry in entries]


def test_every_page_is_reachable_from_the_index():
    suffix_of = {page.rsplit(".", 1)[0]: page for page in PAGES}
    reached, waiting = set(), ["index"]
    while waiting:
        name = waiting.pop()
        if name in reached or name.startswith(tuple(f"{folder}/" for folder in GENERATED)):
            continue
        reached.add(name)
        assert name in suffix_of, f"a toctree lists {name!r}, but there is no such page"
        waiting += listed_by(suffix_of[name])
    assert sorted(set(suffix_of) - reached) == []


@pytest.mark.parametrize("page", ["../README.md", "../CONTRIBUTING.md", *(p for p in PAGES if p.endswith(".md"))])
def test_links_point_to_files(page):
    path = (DOCS / page).resolve()
    missing = [target for target in links_of(path.read_text()) if not source_of(path, target).exists()]
    assert missing == []


def test_links_are_found():
    text = "[a](b.md) ![c](d.png) [e](https://f.g)\n```python\nx[0](y)\n```\n```{figure} gallery/h.png\n```\n"
    assert links_of(text) == ["b.md", "d.png", "gallery/h.png"]
    image = source_of(DOCS / "exact.md", "gallery/images/sphx_glr_plot_exact_001.png")
    assert image == ROOT / "examples" / "plot_exact.py"


@pytest.mark.parametrize("name", [name for name in svelto.__all__ if name != "datasets"])
def test_public_names_are_in_the_api(name):
    assert re.search(rf"(^|\W){re.escape(name)}(\W|$)", (DOCS / "api.rst").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", svelto.datasets.__all__)
def test_names_of_datasets_are_in_the_api(name):
    assert f"   datasets.{name}\n" in (DOCS / "api.rst").read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_begin_with_a_title(name):
    text = ast.get_docstring(ast.parse((ROOT / "examples" / name).read_text()))
    assert text is not None
    title, underline, blank, *description = text.splitlines()
    assert title
    assert underline == "=" * len(title)
    assert not blank
    assert description


def test_there_are_examples():
    assert len(EXAMPLES) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run_without_data_sets(name, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "SVELTO_DATA"}
    environment |= {"MPLBACKEND": "Agg", "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, str(ROOT / "examples" / name)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
