"""Checks of a page by axe-core."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def check_accessible(page, name):
    """Raise for any finding of axe-core, also one that is not serious."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": RULES}).response["violations"]
    findings = [
        (rule["id"], rule["impact"], [node["html"][:200] for node in rule["nodes"][:3]])
        for rule in found
    ]
    assert not findings, f"{name}: {findings}"
