"""The documentation site: it builds strictly, and a browser shows it, served over HTTP and opened from files."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.chromium import Chromium, find_chromium

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["index", "start", "choose", "gallery", "theory", "extend", "api", "api/kernels", "api/inducing"]
PAGES += ["architecture", "benchmarks", "glossary", "contributing", "changelog", "gallery/nuts"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that does not log."""

    def log_message(self, format, *arguments):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the site, built from the sources as they are."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    pytest.importorskip("websocket", reason="websocket-client is not installed: pip install '.[test]'")
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module", params=["http", "file"])
def address(request, site):
    """The site's address: served by Python's own server, and as files."""
    if request.param == "file":
        yield site.as_uri()
        return
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_nothing_comes_from_elsewhere(site):
    """Neither scripts nor styles, pictures or fonts; links to other sites are allowed."""
    loads = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^\s"'>]+""")
    found = {page.name: loads.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {page: tags for page, tags in found.items() if tags} == {}
    for style in (site / "stylesheets").glob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text())


def test_pages_show_without_errors(browser, address):
    browser.errors.clear()
    for page in PAGES:
        browser.open(f"{address}/{page}.html")
        assert browser.evaluate("document.querySelector('article h1').getBoundingClientRect().height") > 0, page
    assert browser.errors == []


def test_formulas_are_rendered(browser, address):
    for page, least in (("index", 1), ("theory", 5)):
        browser.open(f"{address}/{page}.html")
        sizes = browser.evaluate(
            "[...document.querySelectorAll('math')].map(m => m.getBoundingClientRect()).map(r => [r.width, r.height])"
        )
        assert len(sizes) >= least
        assert all(width > 5 and height > 5 for width, height in sizes)
        assert "FORMULA" not in browser.evaluate("document.body.innerText")
        # Stacked fractions and sums are taller than a line of text: MathML is laid out, not shown as plain text.
        assert max(height for _, height in sizes) > 30


def test_search_finds_the_bound(browser, address):
    browser.resize(1280)
    browser.open(f"{address}/index.html")
    browser.evaluate("document.querySelector('.md-search__input').focus()")
    browser.type("elbo")
    browser.wait("document.querySelectorAll('.md-search-result__item').length > 0")
    found = browser.evaluate("document.querySelector('.md-search-result__list').innerText")
    assert "elbo" in found


def test_pictures_load(browser, address):
    for page in ("index", "gallery", "benchmarks", "architecture", "gallery/nuts"):
        browser.open(f"{address}/{page}.html")
        widths = browser.evaluate("[...document.querySelectorAll('article img')].map(image => image.naturalWidth)")
        assert widths and all(width > 0 for width in widths), page
    browser.open(f"{address}/gallery.html")
    shown = browser.evaluate("[...document.querySelectorAll('article img')].map(image => image.src).join(' ')")
    for example in (ROOT / "examples").glob("[a-z]*.py"):
        assert f"/{example.stem}.webp" in shown


def test_pages_fit_a_narrow_screen(browser, address):
    browser.resize(400)
    for page in PAGES:
        browser.open(f"{address}/{page}.html")
        assert browser.evaluate("document.documentElement.scrollWidth") <= 400, page
        outside = browser.evaluate(  # text that is cut off: wider than the screen, and in nothing that scrolls
            """[...document.querySelectorAll('article :is(p, li, h1, h2, h3, img, table, pre, .formula)')].filter(e => {
                 for (let p = e; p && p.tagName != 'ARTICLE'; p = p.parentElement)
                   if (['auto', 'scroll'].includes(getComputedStyle(p).overflowX)) return false
                 return e.getBoundingClientRect().right > 401
               }).map(e => e.outerHTML.slice(0, 200))"""
        )
        assert outside == [], page
    browser.resize(1280)
