"""The HTML page of a report, in Chromium."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from support.browser import show
from support.captures import capture_of, real_trace, saved, training, with_input, with_memory
from support.traces import Op, Plane
from tpumon.report.profiles import Choice
from tpumon.report.render.documents import html
from tpumon.report.sections import SECTIONS, report

LOADING = {"src", "srcset", "href", "data", "action", "poster", "background"}


def page_of(files):
    made = report(capture_of(files), tuple(SECTIONS), Choice())
    return html(made.pages, "Profile of a test")


@pytest.fixture
def page(tmp_path):
    return page_of(saved(tmp_path, with_input()))


class Links(HTMLParser):
    """What a page would load, and what text it shows."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.words = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in LOADING]

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_loads_nothing_and_says_no_error(tmp_path):
    """With every kind of block."""
    page = page_of(saved(tmp_path, training(name="a"), with_input(), with_memory()))
    links = Links(page).found
    assert "#ops" in links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "url(" not in page
    assert "@import" not in page
    shown = show(page, tmp_path)
    assert shown.console == ()
    assert "Operations" in shown.dom


def test_what_the_page_loads_would_be_refused_and_seen(page, tmp_path):
    """So that a page without errors is one without requests."""
    shown = show(page.replace("<main>", '<main><img src="http://127.0.0.1:9/x.png">'), tmp_path)
    assert any("Content Security Policy" in line for line in shown.console), shown


SORTING = """<script>
const title = [...document.querySelectorAll("h3")].find((each) => each.textContent === "Operations");
const buttons = title.nextElementSibling.querySelectorAll("th [role=button]");
const found = [0, 2, 2].map((column, time) => {
  if (time < 2) buttons[column].click();
  else buttons[column].dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", cancelable: true}));
  return [...title.nextElementSibling.querySelectorAll("tbody tr")].map((row) => row.cells[0].textContent);
});
document.body.dataset.found = JSON.stringify(found);
</script></body>"""


def test_tables_can_be_sorted(page, tmp_path):
    """By name upwards, by a number downwards; once more, here by the keyboard, turns it round."""
    shown = show(page.replace("</body>", SORTING), tmp_path)
    assert shown.console == ()
    found = re.search(r'data-found="([^"]*)"', shown.dom)
    by_name, by_share, least_first = json.loads(unescape(found[1]))
    assert by_name == sorted(by_name)
    assert len(by_name) == 10
    assert by_share[0] == "fusion.1"
    assert least_first == by_share[::-1]
    assert len(re.findall(r'<th[^>]* aria-sort="ascending"', shown.dom)) == 1


def test_heads_are_printed_on_every_page_of_a_table(page):
    """Chromium leaves out buttons and what is sticky where it repeats a head; seen in a PDF of the page."""
    heads = "".join(re.findall(r"<thead>.*?</thead>", page, re.DOTALL))
    assert "Operations" in page
    assert "operation" in heads
    assert "<button" not in heads
    assert not re.search(r"^th\b[^}]*sticky", page, re.MULTILINE)


def test_names_stay_words(tmp_path):
    """What an op is called is never run."""
    traced = training(cores=1)
    name = '"><script>document.title = "broken"</script>'
    Plane(traced.space.planes[0]).event("XLA Ops", Op(name, "fusion"), 10_000, 5_000)
    shown = show(page_of(saved(tmp_path, traced)), tmp_path)
    assert "<title>Profile of a test</title>" in shown.dom
    assert name in "".join(Links(shown.dom).words)


def test_the_real_trace_has_all_its_graphs(tmp_path):
    shown = show(page_of([real_trace()]), tmp_path)
    assert shown.console == ()
    titles = re.findall(r'<svg[^>]* aria-label="([^"]*)"', shown.dom)
    assert titles[0] == "Time of each step"
    assert sum(title.startswith("Memory ") for title in titles) == 4
    assert sum(title.startswith("Step time by core") for title in titles) == 1
