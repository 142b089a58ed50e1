"""Rosters: what a line means, and which are refused."""

import pytest

from irtcat.service.assembly import open_service
from irtcat.service.attempts import people
from irtcat.service.base.errors import ConflictError, ServiceError
from irtcat.service.storage.context import new_secret
from tests.service.helpers import publish


@pytest.fixture
def service(tmp_path):
    with open_service(str(tmp_path / "tests.db"), create=True) as opened:
        yield opened


def people_of(lines):
    return [(line.number, line.name, line.email, line.external) for line in lines]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_is_pasted_from_a_spreadsheet(end):
    cells = ["Müller, Anna\tanna@example.org\ts-1\t", '"Ada ""A"" L"\t\ts-2', "\t\t", "Emmy; N."]
    expected = [
        (1, "Müller, Anna", "anna@example.org", "s-1"),
        (2, 'Ada "A" L', "", "s-2"),
        (4, "Emmy; N.", "", ""),
    ]
    assert people_of(people.read_lines(end.join(cells), 500)) == expected
    named = ["ID\tName\tE-mail", "s-1\tMüller, Anna\tanna@example.org", "\tAda"]
    read = people_of(people.read_lines(end.join(named), 500))
    assert read == [(2, "Müller, Anna", "anna@example.org", "s-1"), (3, "Ada", "", "")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_lines(end, bom):
    text = ['"Müller, Anna", anna@example.org , s-1', "", "Ada", " , ,", '"Ada ""A"" L",,s-2']
    read = people.read_lines(bom + end.join(text) + end, 500)
    assert people_of(read) == [
        (1, "Müller, Anna", "anna@example.org", "s-1"),
        (3, "Ada", "", ""),
        (5, 'Ada "A" L', "", "s-2"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_table(end, bom):
    text = ["external, name,accommodations", 's-1,"Müller, Anna",pause|extra_time_25', "", ",Ada,"]
    columns, lines = people.read_table(bom + end.join(text), 500)
    assert columns == ["external", "name", "accommodations"]
    assert people_of(lines) == [(2, "Müller, Anna", "", "s-1"), (4, "Ada", "", "")]
    assert lines[0].accommodations == ("pause", "extra_time_25")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "Ada\n\nMüller, Anna",
            "Line 3: an e-mail address has an @. Got 'Anna'. Write a name with",
        ),
        ("Müller, Anna, anna@example.org", "Line 1: an e-mail address has an @. Got 'Anna'."),
        (
            "Ada\ts-1",
            "Line 1: an e-mail address has an @. Got 's-1'. Write a name with a comma in double "
            'quotes: "Müller, Anna", or begin with the heads of the columns, such as name and id.',
        ),
        ("Müller, Anna, a@b.org, s-1", "Line 1: it must have a name, an e-mail and an id. Got 4"),
        ("Müller; Anna", "Line 1: cells must be separated by commas. Got a semicolon."),
        ("Ada, a@b.org; s-1", "Line 1: cells must be separated by commas. Got a semicolon."),
        ("Ada,\nEmmy\ta@b.org", "Line 2: cells must be separated by commas. Got a tab."),
        ("Ada, a@b.org\t", "Line 1: the first cell is the name. Got 'Ada, a@b.org'."),
        ("Ada\nada@example.org", "Line 2: the first cell is the name. Got 'ada@example.org'."),
        ('Ada\n"Emmy, a@b.org\nGrace\n', "Line 2: double quotes must be around a whole cell"),
        ('"Emmy" N., a@b.org', "Line 1: double quotes must be around a whole cell"),
        ("Ada,,s-1\nEmmy\nGrace,,s-1", "Line 3: the id 's-1' is that of line 1 already."),
        ("a\n" * 501, "There must be at most 500 people. Got 501."),
    ],
)
def test_lines_that_are_refused(text, says):
    with pytest.raises(ServiceError) as caught:
        people.read_lines(text, 500)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name;email\nAda;a@b.org", "Line 1: cells must be separated by commas. Got a semicolon."),
        ("name\nMüller;Anna", "Line 2: cells must be separated by commas. Got a semicolon."),
        ("name\nMüller, Anna", "Line 2: it must have a value for each of 1 columns. Got 2 cells."),
        ("name,email\n\nAda", "Line 3: it must have a value for each of 2 columns. Got 1 cells."),
        ("name,email\nMüller, Anna", "Line 2: an e-mail address has an @. Got 'Anna'."),
        ("name,shoe\nAda,9", "Line 1: the header must have some of external, name, email"),
        ("name,name\nAda,Ada", "Line 1: the header must have some of"),
        ("", "Line 1: the header must have some of"),
        ("external\ns-1\ns-1", "Line 3: the id 's-1' is that of line 2 already."),
    ],
)
def test_tables_that_are_refused(text, says):
    with pytest.raises(ServiceError) as caught:
        people.read_table(text, 500)
    assert str(caught.value).startswith(says)


@pytest.mark.slow
def test_known_people(service):
    test = publish(service)
    ada = people.add_person(
        service, name="Ada", email="ada@example.org", external="s-1", actor="test"
    )
    unnamed = people.add_person(service, external="s-2", actor="test")
    lines = people.read_lines("Ada, ada@example.org, s-1\n,,s-2\nEmmy,,s-3\nEmmy", 500)
    for dry_run in (True, False):
        made = people.issue_tickets(service, test, lines, actor="test", dry_run=dry_run)
        assert [one.status for one in made] == ["known: Ada", "known: s-2", "new", "new"]
        assert [one.ticket.person for one in made][:2] == [ada, unnamed]
        assert len(people.people_table(service)) == (2 if dry_run else 4)
        assert len(people.ticket_table(service)) == (0 if dry_run else 4)
    for text, says in [
        ("Bo\nGrace,,s-1", "Line 2: The id 's-1' is known with name 'Ada'. Got 'Grace'."),
        (
            ",g@b.org,s-1",
            "Line 1: The id 's-1' is known with e-mail 'ada@example.org'. Got 'g@b.org'.",
        ),
        ("Grace,,s-2", "Line 1: The id 's-2' is known with no name. Got 'Grace'."),
    ]:
        for dry_run in (True, False):
            with pytest.raises(ConflictError) as caught:
                people.issue_tickets(
                    service, test, people.read_lines(text, 500), actor="test", dry_run=dry_run
                )
            assert str(caught.value) == says
    assert len(people.people_table(service)) == len(people.ticket_table(service)) == 4


def test_what_a_line_cannot_have_is_named_with_it(service):
    test = publish(service)
    lines = people.read_table("name,accommodations\nAda,\nEmmy,wings", 500).lines
    with pytest.raises(ServiceError, match=r"^Line 3: .*wings"):
        people.issue_tickets(service, test, lines, actor="test", dry_run=True)
    assert people.people_table(service).empty


def test_no_secret_is_a_formula():
    assert all(new_secret()[0].isalnum() for _ in range(2000))
