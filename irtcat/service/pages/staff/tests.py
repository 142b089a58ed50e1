"""Tests: list, publish from files, the publishing report with its figures, retire."""

from typing import Annotated, Any

from fastapi import Depends, Response
from starlette.datastructures import UploadFile

from irtcat import plot
from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts import library
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.base.errors import NotFoundError
from irtcat.service.content.reading import uploaded_items
from irtcat.service.definition import (
    ACCOMMODATIONS,
    Adaptive,
    DefinitionError,
    PublishingReport,
    uploaded_definition,
)
from irtcat.service.pages import CheckedForm
from irtcat.service.pages.staff.base import (
    NAVIGATION,
    Requires,
    Shown,
    Table,
    Visit,
    as_table,
    back_to,
    criterion_words,
    ending_words,
    part_router,
    stopping_words,
    svg,
    whole_number,
)
from irtcat.service.pages.translations import translated

router = part_router()

SEES_TESTS = NAVIGATION["Tests"][1]

Reader = Annotated[Visit, Depends(Requires(*SEES_TESTS))]
ReportReader = Annotated[Visit, Depends(Requires("publish", "parameters", "results"))]
Publisher = Annotated[Visit, Depends(Requires("publish"))]

FIGURES = {
    "rmse": ("RMSE of ability", 3),
    "bias": ("Bias of ability", 3),
    "reliability": ("Reliability", 3),
    "csem_score": ("Standard error, points", 1),
    "mean_items": ("Items, mean", 1),
    "coverage": ("Intervals that hold the true value", 3),
    "clipped": ("Scores beyond the scale", 3),
}
"""Figures of a report: label and decimals."""

TABLES: dict[str, tuple[str, str]] = {
    "length": (
        "Scored items of a taker",
        "section, mean, sd=SD, fewest, q05=5 %, q50=Median, q95=95 %, most",
    ),
    "endings": ("What ends the sessions", "section, rule, share=Share|%"),
    "levels": (
        "Levels: share of takers",
        "level, from=From score, true=True|%, observed=Observed|%",
    ),
    "classification": (
        "Accuracy and consistency at each cut score",
        "method, cut, score, accuracy, false_positive, false_negative, consistency, kappa",
    ),
    "errors": (
        "Errors along the scale",
        "theta=Ability, score, sessions=Takers, items, bias_score=Bias, csem_score=Standard error, "
        "se_score=Reported error",
    ),
    "exposure": (
        "Use of the items",
        "section, max_rate=Highest rate, mean_rate, never_used=Never used|%, overlap",
    ),
    "content": (
        "Content plan",
        "section, group, planned, least=At least, most=At most, mean, satisfied=Kept|%",
    ),
}
"""Tables of a report: caption, and the columns that are shown (see `as_table`)."""

PARAMETER_TABLES: dict[str, tuple[str, str]] = {
    "bookmark": (
        "Items in the order of their difficulty (bookmark table)",
        "page, item, step, theta=Ability, score, level",
    ),
    "items": ("Expected use of each item", "section, item, rate"),
}
"""Tables that tell which items are hard: for those who may see parameters."""


def report_of(test: PublishedTest) -> PublishingReport:
    return PublishingReport.from_json(test.report)


@router.get("/tests")
def list_tests(at: Reader) -> Response:
    return at.page("tests.html", tests=library.published_tests(at.service).to_dict("records"))


@router.get("/tests/new")
def publish_page(at: Publisher) -> Response:
    return at.page("publish.html", faults=[], error="")


@router.post("/uploads/test")
def publish(at: Publisher, form: CheckedForm) -> Response:
    """Check the files, simulate the test, and publish it; or show all faults."""
    try:
        n = whole_number(form, "n_simulated", "Simulated takers", 20, 10_000)
        definition = uploaded_definition(_file(form, "definition", "Test definition")[0])
        bank = ItemBank.from_bytes(_file(form, "bank", "Item bank")[0])
        content, file_name = _file(form, "items", "Items")
        is_table, ignored = file_name.lower().endswith(".csv"), form.get("ignore_tests") == "1"
        items = uploaded_items(content, is_table=is_table, ignore_tests=ignored)
        parts = (definition, bank, items)
        name, _ = library.publish(at.service, *parts, actor=at.actor, n_simulated=n)
    except DefinitionError as error:
        faults = [(fault.field, fault.message) for fault in error.faults]
        return at.page("publish.html", status=422, faults=faults, error="")
    except InputError as error:
        return at.page("publish.html", status=422, faults=[], error=str(error))
    return back_to(f"/staff/tests/{name}", "published")


def _file(form: Any, name: str, label: str) -> tuple[bytes, str]:
    """Content and name of an uploaded file."""
    upload = form.get(name)
    if not isinstance(upload, UploadFile) or not upload.filename:
        raise InputError(f"{label}: choose a file.")
    return upload.file.read(), upload.filename


@router.get("/tests/{test}")
def test_page(at: Reader, test: str) -> Response:
    """What a test consists of, and its report for those who may read it."""
    published = published_test(at.service, test)
    reads = any(map(at.account.may, ("publish", "parameters", "results")))
    report = report_of(published) if reads else None
    return at.page(
        "test.html",
        test=published,
        definition=published.definition,
        sections=_sections(published),
        pages_in_english=not translated(published.definition.language),
        report=report,
        accommodations=[ACCOMMODATIONS[a] for a in published.definition.accommodations.allowed],
        figures=[] if report is None else _figures(report),
        tables=[] if report is None else _tables(published, report, at.account),
    )


def _sections(test: PublishedTest) -> Table:
    rows = []
    for at, section in enumerate(test.definition.sections):
        items, rules = str(len(section.items) or "–"), "–"
        if isinstance(section, Adaptive):
            config = section.config
            items = f"at most {config.total_items} of {test.pools[at].n_items}"
            ending = stopping_words(config.to_json()["stopping"])
            rules = f"{criterion_words(config.criterion)}; ends when {ending}"
        title, limit = section.title or "–", getattr(section, "time_limit", None)
        rows.append([str(at + 1), section.kind, title, items, Shown.clock(limit), rules])
    columns = ["No.", "Kind", "Title", "Items", "Time", "Rules"]
    return Table("Sections", [(label, False) for label in columns], rows)


def _figures(report: PublishingReport) -> list[tuple[str, str]]:
    return [
        (label, Shown.number(float(report.figures[name]), decimals))
        for name, (label, decimals) in FIGURES.items()
        if name in report.figures
    ]


def _tables(test: PublishedTest, report: PublishingReport, account: Account) -> list[Table]:
    shown = {**TABLES, **(PARAMETER_TABLES if account.may("parameters") else {})}
    frames = {name: report.to_frame(name) for name in shown}
    endings, rules = frames["endings"], []
    for at, rule in zip(endings["section"], endings["rule"], strict=True):
        rules.append(ending_words(test.definition.adaptive[int(at) - 1].config, rule))
    frames["endings"] = endings.assign(rule=rules)
    return [
        as_table(frames[name], caption, columns)
        for name, (caption, columns) in shown.items()
        if len(frames[name])
    ]


@router.get("/tests/{test}/figures/{name}.svg")
def figure(at: ReportReader, test: str, name: str) -> Response:
    """A figure of the report: ``errors``, or ``information`` of the bank."""
    published = published_test(at.service, test)
    if name == "errors":
        return svg(plot.score_errors(report_of(published).to_frame("errors")))
    if name == "information" and at.account.may("parameters"):
        return svg(plot.information_curve(published.bank))
    raise NotFoundError("There is no such figure.")


@router.get("/tests/{test}/retire")
def retire_page(at: Publisher, test: str) -> Response:
    """Ask before a test is retired."""
    return at.page("retire.html", test=published_test(at.service, test))
