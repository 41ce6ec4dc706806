"""The report as HTML: what is on the page, that it is sound, and that a browser shows it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from svelto.report import Report, Trial
from svelto.report_page import fragment, page
from svelto.report_pictures import flow, pareto

TRIALS = (
    Trial("exact", "900 support vectors", 0, 7.25, 1.0, "exact", 123456, 0.0, {"exact": 1.0}),
    Trial("hinges", "hinges (63), built on 4000 rows", 4000, 0.3, 0.9996, "statistical", 130000, 1.5),
    Trial("taylor_tree", "taylor_tree (97), built on 4000 rows", 4000, 0.9, 1.0, "statistical", 140000, 1.1),
    Trial("hinges", "small <hinges> (15), hinges (63)", 32561, 0.1, 0.9992, "statistical", 150000, 9.5, chosen=True),
)
REPORT = Report(
    method="hinges",
    promise="statistical",
    asked=0.999,
    agreement=0.9996,
    agreement_bound=0.9991,
    speedups={"exact engine": 42.0},
    work={
        "share settled by small hinges": 0.99,
        "share settled by hinges": 0.008,
        "share settled by exact": 0.002,
        "share sent on by the guard": 0.0005,
        "dot products a row": 16.5,
    },
    details={"kernel": "rbf(gamma=<0.1>)", "bytes": 150000, "calibration rows": "stand-ins, 32561 checked"},
    tried=TRIALS,
)
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Checker(HTMLParser):
    """Every element is closed in order; collects text, tags and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.addresses = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        replace(REPORT, tried=()),
        replace(REPORT, work={}),
        replace(REPORT, tried=TRIALS[:1]),
        replace(REPORT, asked=None, agreement=None, agreement_bound=None, promise="none"),
        Report(method="exact", promise="exact"),
    ],
    ids=["all", "nothing tried", "no shares", "one trial", "no promise", "exact"],
)
def test_pages_are_sound_and_need_no_network(report):
    found = Checker(page(report))
    text = " ".join(found.text)
    assert report.method in text
    assert report.promise in text
    assert found.addresses == []
    assert "script" not in found.tags
    assert "http" not in page(report).replace("http://www.w3.org/2000/svg", "")
    assert ("svg" in found.tags) == bool(report.tried or report.work)


def test_what_is_on_the_page():
    text = " ".join(Checker(page(REPORT)).text)
    for expected in (
        "0.99910",
        "0.99960",
        "99.00% settled",
        "0.80% settled",
        "0.20% settled",
        "0.05% of the rows are unlike",
        "taylor_tree (97)",
        "small <hinges> (15)",
        "rbf(gamma=<0.1>)",
        "150,000 bytes",
        "scikit-learn",
        "times that of the exact engine",
    ):
        assert expected in text, expected


def test_points_lie_where_they_belong():
    """Faster is farther left, wronger is higher, and what never disagrees lies on a line of its own."""
    drawn = pareto(REPORT, "k")
    places = {}
    for i in range(len(TRIALS)):
        dot = drawn.split(f'id="k-p{i}"')[1].split('class="dot"')[1]
        places[i] = tuple(float(dot.split(f'{name}="')[1].split('"')[0]) for name in ("cx", "cy"))
    assert places[3][0] < places[1][0] < places[2][0] < places[0][0]
    assert places[0][1] == places[2][1] > places[1][1] > places[3][1]
    assert drawn.count("hollow") - drawn.count("hollow:") == 2
    assert drawn.count('class="ring"') == 1


def test_shares_of_the_flow_add_up():
    drawn = flow(REPORT)
    assert [share in drawn for share in ("100.00% of the rows", "1.00% of the rows", "0.20% of the rows")] == [True] * 3
    assert flow(replace(REPORT, work={})) == ""


def test_notebooks_get_the_same():
    assert REPORT._repr_html_() == fragment(REPORT)
    Checker(fragment(REPORT))


def test_files_are_complete_or_not_there(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    assert REPORT.to_html(target) == target
    before = target.read_text()
    assert before == page(REPORT)

    def full(source, target):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        replace(REPORT, method="exact").to_html(target)
    assert target.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(FileNotFoundError, match=r"missing does not exist\. Create it"):
        REPORT.to_html(tmp_path / "missing" / "report.html")


def test_in_a_browser(tmp_path):
    """It renders, and hovering over a point shows its configuration."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser_file = shutil.which("chromium")
    if browser_file is None:
        pytest.skip("chromium is not installed")
    target = REPORT.to_html(tmp_path / "report.html")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
        sheet = browser.new_page(viewport={"width": 1000, "height": 1400})
        failed = []
        sheet.on("requestfailed", lambda request: failed.append(request.url))
        sheet.on("pageerror", lambda error: failed.append(str(error)))
        sheet.goto(target.as_uri())
        assert sheet.title() == "svelto: hinges, statistical"
        assert sheet.locator("svg").count() == 2
        point, tip = sheet.locator("g.point").nth(2), sheet.locator("g.tip").nth(2)
        assert not tip.is_visible()
        point.locator(".dot").hover()
        assert tip.is_visible()
        assert "taylor_tree (97)" in tip.text_content()
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1000
        sheet.locator("g.point").nth(3).focus()  # by the keyboard
        assert sheet.locator("g.tip").nth(3).is_visible()
        sheet.screenshot(path=os.environ.get("SVELTO_SCREENSHOT", str(tmp_path / "report.png")), full_page=True)
        assert failed == []
        browser.close()
