"""Build the documentation into `site/`: run the pages' code, write the reference, call MkDocs.

    python docs/tools/make_site.py              # everything; warnings are errors
    python docs/tools/make_site.py --no-run     # links and reference; runs no page's code

Pages are written to `build/docs` with the output and the figures of their blocks, formulas as
MathML, the reference of all public names and commands, and `llms.txt`. What builds the site from
there is MkDocs, and could be any other program that reads `mkdocs.yml`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from latex2mathml.converter import convert
from markdown.extensions.toc import slugify

sys.path.insert(0, str(Path(__file__).resolve().parent))
import pictures
import reference
from blocks import CODE_BLOCK, DOCS, Output, Page, find_blocks, without_options
from fences import stray_fences

ROOT = DOCS.parent
PAGES = ROOT / "build" / "docs"
SITE = ROOT / "site"
NOT_PAGES = ("tools", "__pycache__")
THUMBNAILS = "<!-- thumbnails -->"
HEADING_OR_FIGURE = re.compile(r"^## (.+)$|^!\[([^\]]*)\]\(([^)/]+\.svg)\)$", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\(((?:\.\./)*pictures/([a-z0-9-]+)\.svg)\)")


def main() -> None:
    """Write the pages, then build the site."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--no-run", action="store_true", help="do not run the pages' code")
    parser.add_argument("--site", type=Path, default=SITE, help="folder of the site")
    parser.add_argument("--pages", type=Path, default=PAGES, help="folder of the generated pages")
    options = parser.parse_args()
    write_pages(options.pages, run=not options.no_run)
    build_site(options.pages, options.site.resolve())


def write_pages(folder: Path, run: bool = True) -> None:
    """Write all pages to a folder: those of `docs/`, and those that are made."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns(*NOT_PAGES, "*.sh"))
    shutil.copy(ROOT / "CHANGELOG.md", folder / "changelog.md")
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder)
        text = path.read_text(encoding="utf-8")
        if run:
            print(f"{name}", flush=True)
            text = run_page(text, path)
        else:
            text = CODE_BLOCK.sub(lambda match: without_options(match[0]), text)
        text = text.replace(THUMBNAILS, thumbnails(text))
        path.write_text(with_formulas(text), encoding="utf-8")
    wanted = {m[2] for p in folder.rglob("*.md") for m in PICTURE.finditer(p.read_text())}
    pictures.draw(wanted, folder / "pictures")
    reference.write(folder / "reference")


def run_page(text: str, path: Path) -> str:
    """The page with the outputs and figures of its blocks."""
    parts, end = [], 0
    with tempfile.TemporaryDirectory() as folder:
        page = Page(path.name, Path(folder))
        for number, block in enumerate(find_blocks(text)):
            start, stop = block.span
            output = page.run(block) if "extending" not in path.name else None
            parts += [text[end:start], without_options(text[start:stop])]
            if output is not None and block.language == "console":
                parts[-1] = f"```console\n{output.text.rstrip()}\n```"
            elif output is not None:
                parts.append(shown(output, block.alt, path, number))
            end = stop
    return "".join([*parts, text[end:]])


def shown(output: Output, alt: str, path: Path, number: int) -> str:
    """The Markdown of what a block printed and drew."""
    text = ""
    if output.text.strip():
        text += "\n\n``` { .text .output }\n" + output.text.rstrip() + "\n```"
    if output.figure is not None:
        if not alt:
            raise ValueError(f'{path.name}: the block of a figure needs ```python alt="..."')
        figure = path.with_name(f"{path.stem}-{number}.svg")
        output.figure.savefig(figure)
        text += f"\n\n![{alt}]({figure.name})"
    return text


def thumbnails(text: str) -> str:
    """The figures of a page as small pictures, each with the title of its section, a link to it."""
    cells, title = [], ""
    for heading, alt, picture in HEADING_OR_FIGURE.findall(text):
        title = heading or title
        if picture:
            place = slugify(title, "-")
            cells.append(f"[![{alt}]({picture}) {title}](#{place})")
    grid = "\n\n".join(cells)
    return f'<div class="thumbnails" markdown>\n\n{grid}\n\n</div>' if cells else ""


def with_formulas(text: str) -> str:
    r"""Formulas ($`x`$ in a line, and ```math blocks) as MathML, which browsers draw themselves."""
    text = re.sub(
        r"^```math\n(.*?)^```$",
        lambda match: convert(match[1].strip(), display="block"),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    return re.sub(r"\$`([^`]+)`\$", lambda match: convert(match[1]), text)


def build_site(pages: Path, site: Path) -> None:
    """Call MkDocs; warnings are errors."""
    environment = {**os.environ, "IRTCAT_DOCS_PAGES": str(pages), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    subprocess.run(
        [*command, "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(site)],
        env=environment,
        check=True,
    )
    for path in sorted(site.rglob("*.html")):
        if stray := stray_fences(path.read_text(encoding="utf-8")):
            raise SystemExit(f"{path}: a fence is not rendered: {stray[0]}")
    (site / "llms.txt").write_text(reference.llms_txt(pages, ROOT / "mkdocs.yml"), encoding="utf-8")
    print(f"Wrote the documentation to {site}")


if __name__ == "__main__":
    main()
