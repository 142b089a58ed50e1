"""Write the outputs of the README's commands into it: ``python docs/tools/readme.py``."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from blocks import DOCS, Page, find_blocks

README = DOCS.parent / "README.md"
BEFORE = {
    "irtcat import": "python example_logs.py logs",
    "irtcat predict": "python example_logs.py new --samples samples.json",
}
"""What is run before a command, and is not shown."""

SHOWN = 5
"""Lines of each output that the README shows."""

__all__ = ["README", "with_outputs"]


def with_outputs(text: str) -> str:
    """The README with the present outputs of its commands."""
    parts, end = [], 0
    with tempfile.TemporaryDirectory() as folder:
        page = Page(README.name, Path(folder))
        for block in find_blocks(text):
            if block.language != "console":
                continue
            lines = []
            for command in block.commands:
                hidden = BEFORE.get(" ".join(command.split()[:2]))
                if hidden:
                    page.run_command(hidden)
                lines.append(f"$ {command}\n{_first_lines(page.run_command(command))}")
            start, stop = block.span
            parts += [text[end:start], "```console\n" + "\n".join(lines).rstrip() + "\n```"]
            end = stop
    return "".join([*parts, text[end:]])


def _first_lines(output: str) -> str:
    """The start of an output and the next command at its end; the site shows all of it."""
    lines = [line for line in output.strip().split("\n") if line]
    last = lines[-1:] if lines[-1].startswith("Next: ") else []
    rest = lines[: len(lines) - len(last)]
    return "\n".join([*rest[:SHOWN], *(["..."] if len(rest) > SHOWN else []), *last, ""])


if __name__ == "__main__":
    README.write_text(with_outputs(README.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Wrote {README}")
