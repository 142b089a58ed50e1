"""HTML of items: what is kept, what is refused by name, and that no script survives."""

import re
import time

import pytest

from irtcat import InputError
from irtcat.service.content import Item, Media, markdown_html
from irtcat.service.content.html import clean_html, media_names, plain_text

NAME = f"{'0' * 64}.png"
MEDIA = f"media:{NAME}"

ATTACKS = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1) alt=x>",
    "<img alt='' src='javascript:alert(1)'>",
    "<img alt='' src=' jav&#x09;ascript:alert(1)'>",
    "<img alt='' src='data:image/svg+xml;base64,PHN2Zy8+'>",
    "<img alt='' src='//evil.example/pixel.png'>",
    "<img alt='' src='http://evil.example/pixel.png'>",
    "<img alt='' src='https://evil.example/pixel.png'>",
    "<img alt='' srcset='https://evil.example/pixel.png 2x'>",
    "<img alt='' src='media:../../etc/passwd'>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data='javascript:alert(1)'></object>",
    "<embed src='javascript:alert(1)'>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='https://evil.example'>x</a>",
    "<form action='https://evil.example'><input name=x></form>",
    "<button formaction='javascript:alert(1)'>x</button>",
    "<link rel=stylesheet href='//evil.example/x.css'>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<base href='//evil.example/'>",
    "<style>@import '//evil.example/x.css';</style>",
    "<table background='javascript:alert(1)'><tr><td>x</td></tr></table>",
    "<video poster='javascript:alert(1)'></video>",
    "<audio src='https://evil.example/a.mp3'></audio>",
    "<math><maction actiontype='statusline#x' xlink:href='javascript:alert(1)'>x</maction></math>",
    "<math href='javascript:alert(1)'><mi>x</mi></math>",
    "<math><mtext><img src=x onerror=alert(1)></mtext></math>",
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<template><script>alert(1)</script></template>",
    "<textarea><img src=x onerror=alert(1)></textarea>",
    "<xmp><script>alert(1)</script></xmp>",
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<isindex action='javascript:alert(1)'>",
    "<q cite='javascript:alert(1)'>x</q>",
    "<?xml-stylesheet href='javascript:alert(1)'?><script>alert(1)</script>",
]
"""HTML that an item must not hold at all."""

HARMLESS = [
    ("<p onclick='alert(1)'>x</p>", "<p>x</p>"),
    ("<p style='background:url(javascript:alert(1))'>x</p>", "<p>x</p>"),
    ("<p id='login' class='admin blank'>x</p>", '<p class="blank">x</p>'),
    ("<p ONMOUSEOVER=alert(1) lang=de dir=rtl>x</p>", '<p lang="de" dir="rtl">x</p>'),
    ("<p dir='evil'>x</p>", "<p>x</p>"),
    ("<!-- <script>alert(1)</script> --><p>x</p>", "<p>x</p>"),
    ("<p/onclick=alert(1)>x</p>", "<p>x</p>"),
    (f"<video src='{MEDIA}' autoplay></video>", f'<video src="{MEDIA}" controls=""></video>'),
    ("&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;script&gt;alert(1)&lt;/script&gt;"),
    ("<p>a < b & c</p>", "<p>a &lt; b &amp; c</p>"),
    ("<p>unclosed <em>twice", "<p>unclosed <em>twice</em></p>"),
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_by_name(attack):
    with pytest.raises(InputError, match=r"^item q1, prompt: expected .* Got ") as caught:
        clean_html(attack, "item q1, prompt")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="item q1"):
        Item("q1", "text", f"<p>x</p>{attack}")


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_do_not_survive_the_second_step_alone(attack):
    """nh3 by itself leaves nothing that acts or fetches, whatever the first step overlooks."""
    from irtcat.service.content.html import _CLEANER

    html = _CLEANER.clean(attack)
    assert not re.search(r"<[^>]*(\son|javascript:|https?:|//evil|srcdoc|data:)", html, re.I)
    assert not re.search(r"<(script|iframe|object|embed|svg|style|form|input|base|meta|link)", html)


def test_unknown_declarations_are_refused():
    with pytest.raises(InputError, match=r"q: expected HTML without declarations\. Got <!\.\.\.>"):
        clean_html("<![x]>", "q")


@pytest.mark.parametrize("piece", ["<!--", "<p a='", "<![CDATA[", "<?", "</", "<p "])
def test_what_is_never_closed_is_refused_at_once(piece):
    """html.parser takes minutes for these; the time here is measured in milliseconds."""
    start = time.process_time()
    with pytest.raises(InputError, match="q: expected HTML"):
        clean_html(piece * (200_000 // len(piece)), "q")
    assert time.process_time() - start < 5
    assert clean_html("a <", "q") == "a &lt;"


@pytest.mark.parametrize("text", ["\ud800", "*\udfff*", "$\ud800$"])
def test_lone_surrogates_are_refused(text):
    with pytest.raises(InputError, match="q: expected"):
        markdown_html(text, "q")


@pytest.mark.parametrize(("html", "clean"), HARMLESS)
def test_what_only_needs_removing_is_removed(html, clean):
    assert clean_html(html, "q") == clean
    assert clean_html(clean, "q") == clean


@pytest.mark.parametrize(
    "html",
    [
        "<ul><li>a</li><li>b</li></ul>",
        '<table><caption>c</caption><thead><tr><th scope="col">a</th></tr></thead>'
        '<tbody><tr><td colspan="2">1</td></tr></tbody></table>',
        "<p><em>a</em> <strong>b</strong> <sub>1</sub><sup>2</sup></p>",
        '<p lang="fr">oui</p>',
        "<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>",
        f'<p><img src="{MEDIA}" alt="a chart"></p>',
        '<math display="block"><mrow><munderover><mo>∑</mo><mn>1</mn><mi>n</mi></munderover>'
        "<mfrac><mi>x</mi><mn>2</mn></mfrac><msqrt><mi>y</mi></msqrt></mrow>"
        '<mspace width="1em"></mspace><mtext>für alle</mtext></math>',
        '<math><mtable columnalign="left"><mtr><mtd><mn>1</mn></mtd></mtr></mtable></math>',
    ],
)
def test_content_and_mathml_survive_unchanged(html):
    assert clean_html(html, "q") == html


def test_picture_without_description_is_refused():
    with pytest.raises(InputError, match="item q1: expected <img> with alt"):
        clean_html(f"<img src='{MEDIA}'>", "item q1")


def test_addresses_are_replaced_and_found():
    html = clean_html("<img src='a.png' alt='A'><img alt='' src='a.png'>", "q", lambda _: MEDIA)
    assert media_names(html) == (NAME,)
    assert plain_text("<p>x</p><p>y" + html) == "x yA"


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        (r"$\frac{a}{b}$", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (
            "$$x < 3$$",
            '<math display="block"><mrow><mi>x</mi><mo>&lt;</mo><mn>3</mn></mrow></math>',
        ),
        (r"$\sqrt[3]{8}$", "<mroot>"),
    ],
)
def test_formulas_become_mathml(formula, part):
    assert part in markdown_html(formula, "q")


@pytest.mark.parametrize("text", ["It costs $5 and $6.", r"It costs \$5.", "5$ or 6$"])
def test_money_is_no_formula(text):
    assert "<math" not in markdown_html(text, "q")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"$\foo$", r"\\foo is unknown"),
        (r"$\frac{1}$", "an operand is missing"),
        (r"$\left( x$", "expected a formula in LaTeX"),
        ("$x^2^3$", "DoubleSuperscripts"),
        (f"$${'{' * 600}$$", "expected a formula"),
        (f"$${'x+' * 1500}$$", "at most 2,000 characters"),
        (r"$\href{javascript:alert(1)}{x}$", "media files of the item set"),
        (r"$\text{<script>alert(1)</script>}$", "Got <script>"),
        ("x" * 200_001, "at most 200,000 characters. Got 200,001"),
        ("[x](https://evil.example)", "Got <a>"),
        ("![x](https://evil.example/x.png)", "media files of the item set"),
        ("![x](here.png)", "media files of the item set"),
    ],
)
def test_bad_markdown(text, message):
    with pytest.raises(InputError, match=message):
        markdown_html(text, "q")


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 2">%s</svg>'


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (b"<script>alert(1)</script>", "Got <script>"),
        (b'<rect onload="alert(1)"/>', "Got onload of <rect>"),
        (b"<foreignObject/>", "Got <foreignObject>"),
        (b'<image href="https://evil.example/x.png"/>', "Got <image>"),
        (b'<use href="https://evil.example/x.svg#a"/>', "Got href of <use>"),
        (b'<a xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="javascript:x"/>', "Got <a>"),
        (b"<style>@import url(//evil.example)</style>", "Got <style>"),
        (b'<rect fill="url(https://evil.example/x)"/>', "Got fill of <rect>"),
        (b'<animate attributeName="href"/>', "Got <animate>"),
        (b'<b xmlns="http://www.w3.org/1999/xhtml"/>', "Got HTML"),
    ],
)
def test_pictures_in_svg_only_draw(inside, message):
    with pytest.raises(InputError, match=message):
        Media.from_bytes(SVG % inside, "x.svg")


def test_usual_svg_is_kept():
    inside = b'<defs><linearGradient id="g"/></defs><rect fill="url(#g)" style="opacity:1"/>'
    assert Media.from_bytes(SVG % inside, "x.svg").type == "image/svg+xml"


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"<html><script>alert(1)</script>", "x.png", "expected content of the type image/png"),
        (b"<html/>", "x.svg", "expected a picture in SVG"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]>' + SVG % b"", "x.svg", "without a document type"),
        (b"\x89PNG\r\n\x1a\n", "x.html", "expected one of the suffixes"),
        (b"MZ", "x.exe", "expected one of the suffixes"),
        (b"MZ", "png", "expected one of the suffixes"),
        (b"", "x.mp3", "expected content of the type audio/mpeg"),
    ],
)
def test_bad_media(data, name, message):
    with pytest.raises(InputError, match=message):
        Media.from_bytes(data, name)


def test_media_is_not_too_large(monkeypatch):
    monkeypatch.setattr("irtcat.service.content.media.MOST_MEDIA", 2**20)
    with pytest.raises(InputError, match=r"expected at most 1 MiB\. Got 2 MiB"):
        Media.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2 * 2**20), "x.png")
