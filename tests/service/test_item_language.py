"""Items without a language have that of the test that they are published with."""

import pytest

from irtcat import InputError
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library
from irtcat.service.content import Item, ItemSet, Key, read_items, scored, write_qti
from irtcat.service.operations import provision
from tests.service import helpers

FRONT = '+++\nkind = "text"\nnumeric = true\nkey = "{}"\n{}+++\nWie viel?\n'


def folder(path, key, more=""):
    path.mkdir()
    for name in (*(f"q{n}" for n in helpers.NUMBERS), "p1"):
        (path / f"{name}.md").write_text(FRONT.format(key, more), encoding="utf-8")
    return read_items(path)


@pytest.fixture
def service(tmp_path):
    with open_service(str(tmp_path / "tests.db"), create=True) as opened:
        yield opened


def publish(service, items, language):
    test = helpers.definition(language=language)
    return library.publish(service, test, helpers.bank(), items, actor="test", n_simulated=20)[0]


@pytest.mark.slow
def test_numbers_are_those_of_the_language_of_the_test(tmp_path, service):
    items = folder(tmp_path / "items", "1,500")
    assert items["q0"].language == ""
    test = library.published_test(service, publish(service, items, "de"))
    assert (test.item("q0").language, test.item("q0").direction) == ("de", "ltr")
    assert [test.coded("q0", text)[1] for text in ("1,500", "1,5", "1.5", "1500")] == [1, 1, 1, 0]
    with pytest.raises(InputError, match="expected a number"):
        test.coded("q0", "1.500")
    with pytest.raises(InputError, match="numbers for a numeric item"):
        publish(service, items, "en")


@pytest.mark.slow
def test_an_item_keeps_its_own_language(tmp_path, service):
    items = folder(tmp_path / "items", "1.500", 'language = "en"\n')
    test = library.published_test(service, publish(service, items, "de"))
    assert test.item("q0").language == "en"
    assert test.coded("q0", "1.500")[1] == 1


@pytest.mark.slow
def test_the_item_set_is_stored_as_it_was_published(tmp_path, service):
    """An upload knows no test: its set stays, and the test has another with the language."""
    items = folder(tmp_path / "items", "15")
    uploaded = library.add_items(service, items)
    files = provision.SourceFiles(helpers.definition(language="ar"), helpers.bank(), items)
    name, is_new = provision.publish_files(service, files, actor="test")
    assert is_new
    assert provision.publish_files(service, files, actor="test") == (name, False)
    stored = library.published_test(service, name).items
    assert stored["q0"].direction == "rtl"
    assert stored.hash() == items.in_language("ar").hash() != uploaded
    assert set(library.item_sets_table(service)["hash"]) == {uploaded, stored.hash()}
    assert library.item_set(service, uploaded).hash() == uploaded == items.hash()


def test_a_key_is_a_number_in_one_of_the_languages():
    item = Item("q", "text", "<p>?</p>", numeric=True)
    for text in ("1,500", "1.500"):
        ItemSet([item], [Key("q", "match", correct=(text,))])
    with pytest.raises(InputError, match="numbers for a numeric item"):
        ItemSet([item], [Key("q", "match", correct=("many",))])


def test_numbers_of_qti_have_a_decimal_point_in_every_language(tmp_path):
    item = Item("q", "text", "<p>?</p>", numeric=True)
    write_qti(ItemSet([item], [Key("q", "match", correct=("1.500",))]), tmp_path / "q.zip")
    items = read_items(tmp_path / "q.zip")
    assert items["q"].language == ""
    for language in ("de", "en"):
        read = items.in_language(language)
        assert scored(read.keys["q"], read["q"], "1.5", 2) == 1
