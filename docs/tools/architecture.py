"""The picture and the tables of the architecture page, from the imports and the packages' faces.

python docs/tools/architecture.py      # writes them into the page
"""

import ast
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from imports import NAME, Package, layers

__all__ = ["PAGE", "filled"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contributing" / "architecture.md"
WIDTH = 78


def filled(text: str) -> str:
    """The text of the page with its generated blocks as they should be."""
    package = Package(ROOT / NAME)
    blocks = {"picture": picture(package), "parts": parts_table(package)}
    for name, block in blocks.items():
        pattern = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(text):
            raise ValueError(f"{PAGE.name} has no place for {name}.")
        text = pattern.sub(lambda match, block=block: f"{match[1]}{block}\n{match[2]}", text)
    return text


def picture(package: Package) -> str:
    """The parts in their layers: a part imports only parts that stand below it."""
    rows = [" ".join(f"[{name}]" for name in layer) for layer in layers(package.parts)]
    return "```text\n" + "\n".join(row.center(WIDTH).rstrip() for row in rows[::-1]) + "\n```"


def parts_table(package: Package) -> str:
    """Each part with what it is for, what it imports directly, and its folders."""
    order = [name for layer in layers(package.parts) for name in layer]
    below = {name: indirect(package.parts, name) for name in order}
    rows = ["| part | what it is for | stands on | its folders |", "|---|---|---|---|"]
    for name in order:
        needs = package.parts[name]
        direct = sorted(m for m in needs if not any(m in below[other] for other in needs - {m}))
        folders = [
            f"`{module.split('.')[2]}`"
            for module in package.modules
            if module.count(".") == 2
            and module.split(".")[1] == name
            and package.is_package(module)
        ]
        rows.append(
            f"| `{name}` | {summary(package, f'{NAME}.{name}')} "
            f"| {', '.join(f'`{m}`' for m in direct)} | {', '.join(folders)} |"
        )
    return "\n".join(rows)


def indirect(graph: dict[str, set[str]], name: str) -> set[str]:
    """All parts that stand below one."""
    out: set[str] = set()
    todo = list(graph[name])
    while todo:
        other = todo.pop()
        if other not in out:
            out.add(other)
            todo += graph[other]
    return out


def summary(package: Package, name: str) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(package.tree(name)) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
