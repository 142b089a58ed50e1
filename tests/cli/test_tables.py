"""Tables fit the terminal, and explain what they show."""

import io
import sys

import numpy as np
import pandas as pd
import pytest

from irtcat.cli import _output
from irtcat.cli._output import COLUMNS, Table, column_of, figures, say, show, with_texts


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def printed(monkeypatch):
    """What is printed on a stream, and the legend."""

    def printed(stream, table, width=80):
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        legend = show(table)
        return stream.getvalue().splitlines(), legend

    return printed


N = 30
WIDE = pd.DataFrame(
    {
        "b": np.linspace(-8, 8, N),
        "proportion_correct": np.linspace(0, 1, N),
        **{f"column_{i}": np.arange(N) * 0.1 for i in range(9)},
        "flag": ["constant", *[""] * (N - 1)],
    },
    index=pd.Index([f"{'task' * 12}/{i:04}" for i in range(N)], name="item"),
)


@pytest.mark.parametrize("width", [40, 80, 100, 140, 300])
def test_a_table_fits_the_terminal(printed, width):
    lines, legend = printed(Terminal(), Table(WIDE, rows=10), width)
    assert max(map(len, lines)) <= max(width, 80)
    heading = lines[0].split()
    assert heading[:2] == ["item", "difficulty"]
    assert heading[-1] == "flag"
    assert len(lines[1:11]) == 10
    # Ids are whole: other commands take them.
    assert [line.split()[0] for line in lines[1:11]] == WIDE.index[:10].tolist()
    assert "... and 20 more rows" in lines
    assert "Flagged 'constant': 1 of 30" in lines
    is_cut = any("not shown for lack of width; --csv prints all." in line for line in lines)
    assert is_cut == ("column 8" not in lines[0])
    assert is_cut == (width < 300)
    assert "difficulty: the ability at which half of the answers are right (b)" in legend


def test_a_pipe_has_everything(printed):
    lines, _ = printed(io.StringIO(), Table(WIDE))
    assert len(lines) == N + 1
    cells = [line.split("\t") for line in lines]
    assert {len(row) for row in cells} == {1 + WIDE.shape[1]}
    assert cells[0][-2:] == ["column 8", "flag"]
    assert cells[4][0] == WIDE.index[3]


def test_difficulties_out_of_range_are_not_numbers(printed):
    lines, legend = printed(io.StringIO(), Table(WIDE))
    assert "beyond -6" in lines[1]
    assert "beyond 6" in lines[-1]
    assert "-8" not in lines[1]
    assert any(line.startswith("beyond: ") for line in legend)
    _, plain = printed(io.StringIO(), Table(WIDE[10:20]))
    assert not any(line.startswith("beyond") for line in plain)


def test_values_a_person_can_read(printed):
    frame = pd.DataFrame({"score": [0.5, np.nan], "outlier": [True, False], "n_items": [3, 4]})
    lines, _ = printed(io.StringIO(), Table(frame, percent=("score",)))
    cells = [line.split("\t") for line in lines]
    assert cells == [["score", "outlier", "items"], ["50.0 %", "yes", "3"], ["", "no", "4"]]


def test_a_flag_of_all_rows_is_said_once(printed):
    frame = WIDE.assign(flag="few subjects")
    lines, _ = printed(Terminal(), Table(frame, rows=5))
    assert sum("few subjects" in line for line in lines) == 1
    assert "Flagged 'few subjects': 30 of 30" in lines


def test_names_of_rules_are_explained(printed):
    frame = pd.DataFrame({"strategy": ["random"], "estimator": ["pirt"], "n_items_hard": [3]})
    _, legend = printed(io.StringIO(), Table(frame))
    assert "random: a simple random sample" in legend
    assert any(line.startswith("pirt: ") for line in legend)
    assert "hard pairs: items needed for the most difficult tenth of pairs" in legend


def test_headings_are_on_one_line_and_differ():
    assert column_of("se_b").heading == "SE difficulty"
    assert column_of("some_other_name").heading == "some other name"
    headings = [column.heading for name, column in COLUMNS.items() if name not in ("n", "n_items")]
    assert all(heading and "\n" not in heading for heading in headings)


def test_figures_are_explained():
    table = figures({"sessions": 50.0, "overlap": 0.25, "theta": None})
    assert table["value"].to_dict() == {"sessions": "50", "overlap": "0.250"}
    assert table["meaning"]["overlap"] == "share of items that two sessions have in common"


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch):
    for stream, no_color, is_coloured in (
        (Terminal(), "", True),
        (Terminal(), "1", False),
        (io.StringIO(), "", False),
    ):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        say("text", bold=True)
        show(Table(WIDE, "Title", rows=3))
        _output.warn("careful")
        assert ("\x1b[" in stream.getvalue()) == is_coloured


def test_messages_name_options():
    labels = {
        "max_iterations": "--max-iterations",
        "level": "--level",
        "bank": "BANK",
        "duplicates": "--duplicates",
        "stopping": "--stop",
        "n_items": "-k",
    }
    token = _output.LABELS.set(labels)
    cases = {
        "The `level` argument must be less. Got 2.": "The --level option must be less. Got 2.",
        "The `bank` argument must be a bank.": "The BANK argument must be a bank.",
        "Raise max_iterations.": "Raise --max-iterations.",
        'Pass duplicates="first", or set `stopping`.': "Pass --duplicates first, or set --stop.",
        "At this level 3 items.": "At this level 3 items.",
        "n_items.csv: no such file.": "n_items.csv: no such file.",
        "out/max_iterations is a folder": "out/max_iterations is a folder",
        "The `other` argument": "The `other` argument",
        "other_name=3": "other_name=3",
    }
    try:
        assert {text: _output.with_options(text) for text in cases} == cases
    finally:
        _output.LABELS.reset(token)


def test_items_whose_ids_are_hashes_have_their_texts_on_a_terminal(monkeypatch):
    ids = ["arc/3f2a90bc11de", "arc/00ab31cd97ef"]
    table = pd.DataFrame({"b": [1.0, 0.0], "a": [1.0, 1.0], "text": ["x", "y"]}, index=ids)
    items = pd.DataFrame({"question": ["Why?\nSay so.", "w" * 200]}, index=ids[::-1])
    monkeypatch.setattr("irtcat.cli._output.to_terminal", lambda: True)
    shown = with_texts(table, items)
    assert list(shown) == ["b", "a", "text"]
    assert shown["text"].tolist() == ["w" * 30 + "…" + "w" * 29, "Why? Say so."]
    named = table.set_axis(["first", "second"])
    assert with_texts(named, items.set_axis(["second", "first"])) is named
    monkeypatch.setattr("irtcat.cli._output.to_terminal", lambda: False)
    assert with_texts(table, items) is table
