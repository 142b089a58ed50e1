"""The site builds without warnings, and holds what it should."""

import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs", reason="needs the extra docs: pip install 'irtcat[docs]'")
pytest.importorskip("mkdocstrings_handlers.python", reason="needs the extra docs")
pytest.importorskip("latex2mathml", reason="needs the extra docs")

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "tools"))
import fences  # noqa: E402
import make_site  # noqa: E402
import reference  # noqa: E402


class Tags(HTMLParser):
    """Ids of a page, what it loads, and where it links to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loaded, self.links = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        address = values.get("src") or values.get("href")
        if tag == "a" and address:
            self.links.append(address)
        elif tag in ("script", "link", "img", "iframe", "source") and address:
            self.loaded.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site without the outputs of code blocks, which other tests run."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(DOCS / "tools" / "make_site.py"), "--no-run"]
    done = subprocess.run(
        [*command, "--site", str(folder / "site"), "--pages", str(folder / "pages")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Tags(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, tags in pages.items():
        assert not [url for url in tags.loaded if urlsplit(url).netloc], path
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()[\s'\"]*(?:https?:)?//", path.read_text()), path


def test_links_and_files_exist(site, pages):
    for path, tags in pages.items():
        if path.name == "404.html":
            continue
        for address in [*tags.links, *tags.loaded]:
            url = urlsplit(address)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            assert target.exists(), (path.name, address)
            if url.fragment and target in pages:
                assert unquote(url.fragment) in pages[target].ids | {"__top"}, (path.name, address)


def test_every_public_name_is_in_the_reference(site):
    lines = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    listed = {line.split(" ")[0] for line in zlib.decompress(lines).decode().splitlines()}
    for home in set(reference.documented_in().values()):
        assert home in listed, home


def test_every_command_is_in_the_reference(site):
    from irtcat.cli._app import COMMANDS

    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"<code>irtcat {name}</code>" in text, name
    assert "<code>--strategy NAME</code>" in text
    assert "<code>irtcat session next</code>" in text


def test_llms_txt_names_every_page(site):
    text = (site / "llms.txt").read_text(encoding="utf-8")
    named = re.findall(r"^- \[.+?\]\((.+?)\)", text, re.MULTILINE)
    assert text.startswith("# irtcat\n\n> ")
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")} - {"404.html"}
    assert sorted(named) == sorted(pages)


def test_formulas_are_drawn_by_the_browser(site):
    text = (site / "guides" / "models.html").read_text(encoding="utf-8")
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"' in text
    assert "$`" not in text


def test_no_fence_is_in_the_text(site):
    for path in site.rglob("*.html"):
        assert fences.stray_fences(path.read_text(encoding="utf-8")) == [], path


def test_the_search_works_from_the_disk(site):
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ")
    assert "Kendall" in index
    text = (site / "index.html").read_text(encoding="utf-8")
    assert 'src="assets/iframe-worker.js"' in text


def test_outputs_and_figures_stand_under_their_blocks(tmp_path):
    (tmp_path / "page.md").write_text("")
    text = '```python\nprint(6 * 7)\n```\n\n```python alt="A curve"\nimport irtcat\n'
    text += "bank = irtcat.ItemBank.from_parameters(b=[0.0])\nirtcat.plot.item_curves(bank)\n```\n"
    page = make_site.run_page(text, tmp_path / "page.md")
    assert "``` { .text .output }\n42\n```" in page
    assert page.rstrip().endswith("![A curve](page-1.svg)")
    assert "alt=" not in page
    assert (tmp_path / "page-1.svg").read_text().startswith("<?xml")


def test_a_figure_without_a_description_is_refused(tmp_path):
    text = "```python\nfrom matplotlib.figure import Figure\nFigure()\n```\n"
    with pytest.raises(ValueError, match="alt"):
        make_site.run_page(text, tmp_path / "page.md")
