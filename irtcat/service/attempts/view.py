"""What a test taker sees of an attempt, as a JSON document, and the addresses of its media files.

It is made of an explicit list of fields: no key, no parameter, no ability, no standard error, no id
of an item or a choice, and no reason why an item was chosen. Items have the number in which they
were shown, choices the place in which they are shown.
"""

import functools
import math
import random
import re
from collections.abc import Callable
from typing import Any

from irtcat.service.attempts.attempt import Attempt
from irtcat.service.base.errors import found
from irtcat.service.content import Choice, Item, markdown_html
from irtcat.service.definition import Adaptive, Break, Fixed, Instructions, Practice
from irtcat.service.storage.context import Service

MediaUrl = Callable[[str], str]
"""A function that returns the address of a media file, signed for a short time."""

MEDIA = re.compile(r'(?<==")media:([0-9a-f]{64}\.[a-z0-9]{2,5})(?=")')
"""Addresses of media files in attributes of sanitised HTML."""

CHOICE = re.compile(r'data-choice="([^"]*)"')

PART = re.compile(r'data-part="([^"]*)"')

SHOWN = (
    *("kind", "inline", "language", "direction", "max_choices", "min_choices"),
    *("expected_length", "expected_lines", "pattern", "numeric"),
)
"""Attributes of an item that takers see as they are."""


def choice_order(item: Item, seed: int | str, options: bool = False) -> list[str]:
    """Ids of an item's choices, or of its options, in the order in which a person sees them.

    Choices are shuffled by the seed of the attempt where the item says so; fixed ones stay. Areas
    of a picture and gaps of a text stay where they are.
    """
    choices = item.options if options else item.choices
    ids = [choice.id for choice in choices]
    in_place = not options and (item.picture is not None or item.marks_choices)
    if not item.shuffle or in_place:
        return ids
    free = [at for at, choice in enumerate(choices) if not choice.fixed]
    seed = f"{seed}.{item.id}.options" if options else f"{seed}.{item.id}"
    drawn = random.Random(seed).sample(free, len(free))
    out = list(ids)
    for at, other in zip(free, drawn, strict=True):
        out[at] = ids[other]
    return out


def _places(item: Item, seed: int | str) -> dict[str, str]:
    """The name of each choice and option in the taker's view, by its id."""
    places = {name: f"c{at}" for at, name in enumerate(choice_order(item, seed), start=1)}
    others = enumerate(choice_order(item, seed, options=True), start=1)
    return places | {name: f"o{at}" for at, name in others}


def _parts(item: Item) -> dict[str, Item]:
    """The answer fields of an item by their names in the taker's view."""
    return {f"p{at}": part for at, part in enumerate(item.parts, start=1)}


def _seed_of_part(item: Item, seed: int | str) -> str:
    """The seed by which the choices of an item's parts are shuffled."""
    return f"{seed}.{item.id}"


def response_of(attempt: Attempt, name: str, response: Any) -> Any:
    """A response in ids of choices, from one in the taker's names of choices."""
    return _in_ids(attempt.test.item(name), attempt.head["seed"], response)


def _in_ids(item: Item, seed: int | str, response: Any) -> Any:
    if item.parts and isinstance(response, dict):
        parts, inner = _parts(item), _seed_of_part(item, seed)
        return {
            parts[name].id if name in parts else name: (
                _in_ids(parts[name], inner, value) if name in parts else value
            )
            for name, value in response.items()
        }
    return _renamed(response, {place: name for name, place in _places(item, seed).items()})


def _renamed(response: Any, names: dict[str, str]) -> Any:
    """A response with other names of choices, also in pairs of them."""
    if isinstance(response, list):
        return [_renamed(value, names) if isinstance(value, str) else value for value in response]
    if isinstance(response, str):
        return " ".join(names.get(word, word) for word in response.split(" "))
    return response


def with_media(html: str, media_url: MediaUrl) -> str:
    """HTML with the addresses of its media files."""
    return MEDIA.sub(lambda match: media_url(match[1]), html)


def item_view(attempt: Attempt, name: str, media_url: MediaUrl) -> dict[str, Any]:
    """The content of an item, with the response that was given to it."""
    item, answer = attempt.test.item(name), attempt.progress.answers.get(name)
    stimulus = attempt.test.items.stimuli[item.stimulus] if item.stimulus else None
    response = None if answer is None else answer.response
    return {
        "number": attempt.progress.number[name],
        **field_view(item, attempt.head["seed"], response, media_url),
        "stimulus": None if stimulus is None else with_media(stimulus.content_html, media_url),
        "stimulus_title": "" if stimulus is None else stimulus.title,
        "stimulus_language": "" if stimulus is None else stimulus.language,
        "answered": answer is not None,
        "flagged": name in attempt.progress.flagged,
    }


def field_view(
    item: Item, seed: int | str, response: Any, media_url: MediaUrl, part: str = ""
) -> dict[str, Any]:
    """The content of an item, or of one of its answer fields, with the response to it."""
    places, parts = _places(item, seed), _parts(item)
    names = {it.id: name for name, it in parts.items()}

    def shown(html: str) -> str:
        html = with_media(html, media_url)
        html = PART.sub(lambda match: f'data-part="{names.get(match[1], "")}"', html)
        return CHOICE.sub(lambda match: f'data-choice="{places.get(match[1], "")}"', html)

    def listed(choices: tuple[Choice, ...], order: list[str]) -> list[dict[str, Any]]:
        inline = item.kind == "hottext"
        return [
            {
                "id": places[choice.id],
                "content": "" if inline else shown(choice.content_html),
                "most": choice.most,
                "area": choice.area,
            }
            for choice in sorted(choices, key=lambda choice: order.index(choice.id))
        ]

    inner, picture = _seed_of_part(item, seed), item.picture
    given = response if isinstance(response, dict) else {}
    fields = [
        field_view(it, inner, given.get(it.id), media_url, name) for name, it in parts.items()
    ]
    if given:
        response = {it["part"]: it["response"] for it in fields if it["response"] is not None}
    return {
        "part": part,
        "marked": item.marks_choices,
        "prompt": shown(item.prompt),
        "choices": listed(item.choices, choice_order(item, seed)),
        "options": listed(item.options, choice_order(item, seed, options=True)),
        "picture": picture and picture.to_json() | {"media": media_url(picture.media)},
        "parts": fields,
        **{name: getattr(item, name) for name in SHOWN},
        "response": _renamed(response, places),
    }


def _whole(seconds: float) -> int | None:
    """Seconds left as a whole number, None without a limit."""
    return None if math.isinf(seconds) else max(math.ceil(seconds), 0)


@functools.lru_cache(maxsize=256)
def _page_text(markdown: str) -> str:
    """The text of instructions or of a break as sanitised HTML."""
    return markdown_html(markdown, "text")


def time_left(attempt: Attempt) -> dict[str, Any]:
    """Whole seconds left of the test, the section and the item (None without a limit)."""
    return {
        **{scope: _whole(seconds) for scope, seconds in vars(attempt.remaining()).items()},
        "running": attempt.progress.status == "running",
        "warnings": list(attempt.test.definition.time_warnings),
        "abandoned_after": attempt.test.definition.abandoned_after,
    }


def _saved(attempt: Attempt) -> int:
    """How many answers are stored: of the test, or during practice of practice."""
    progress, sections = attempt.progress, attempt.test.definition.sections
    practises = isinstance(progress.part, Practice)
    answers = progress.answers.values()
    return sum(isinstance(sections[it.section], Practice) == practises for it in answers)


def taker_view(
    attempt: Attempt, media_url: MediaUrl, report: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The page that a taker sees now.

    Returns:
        ``page`` is "instructions", "item", "answers" (the list of a section that is reviewed),
        "break", "paused", "finished" or "void"; the other fields are those that the page needs.
    """
    progress, definition = attempt.progress, attempt.test.definition
    part = progress.part
    sections = [s for s in definition.sections if not isinstance(s, (Instructions, Break))]
    out: dict[str, Any] = {
        "title": definition.title,
        "language": definition.language,
        "status": progress.status,
        "page": _page(attempt),
        "section": {
            "number": None if part not in sections else sections.index(part) + 1,
            "count": len(sections),
            "kind": "" if part is None else part.kind,
            "title": "" if part is None else part.title,
        },
        "time": time_left(attempt),
        "may": {
            "skip": progress.status == "running" and attempt.may_skip(),
            "review": progress.to_review(),
            "proceed": progress.status == "running" and attempt.may_proceed(),
            "pause": progress.status == "running" and attempt.may_pause(),
            "resume": attempt.may_resume(),
        },
        "saved": _saved(attempt),
        "item": None,
        "items": [],
        "text": "",
        "progress": _advance(attempt),
        "report": None,
    }
    if progress.status == "running" and isinstance(part, (Instructions, Break)):
        out["text"] = _page_text(part.text)
    if out["page"] == "item" and progress.current is not None:
        out["item"] = item_view(attempt, progress.current, media_url)
    if progress.status == "running" and progress.to_review() and isinstance(part, Fixed):
        out["items"] = [
            {
                "place": at,
                "current": name == progress.current,
                "seen": name in progress.items,
                "answered": name in progress.answers
                and progress.answers[name].response is not None,
                "flagged": name in progress.flagged,
            }
            for at, name in enumerate(part.items, start=1)
        ]
    if progress.status == "finished":
        out["report"] = report or {}
    return out


def _page(attempt: Attempt) -> str:
    progress, part = attempt.progress, attempt.progress.part
    if progress.status != "running":
        return progress.status
    if isinstance(part, (Instructions, Break)):
        return part.kind
    return "item" if progress.current is not None else "answers"


def _advance(attempt: Attempt) -> dict[str, int]:
    """Answers in the current section, and how many there are (at most, in an adaptive one)."""
    progress, part = attempt.progress, attempt.progress.part
    done = sum(answer.section == progress.section for answer in progress.answers.values())
    if isinstance(part, Adaptive):
        n_items = attempt.test.pools[progress.section].n_items
        return {"done": done, "of": min(part.config.total_items, n_items)}
    return {"done": done, "of": 0 if part is None else len(part.items)}


MEDIA_LASTS = 6 * 3600
"""Seconds that an address is valid: longer than an item is shown."""


def media_urls(service: Service, attempt: str) -> MediaUrl:
    """A function that makes the address of a media file for one attempt."""
    return lambda name: f"/media/{service.sealed('media', [attempt, name], timed=True)}/{name}"


def signed_media(service: Service, signature: str, name: str) -> str:
    """The name of the file that an address is signed for.

    Raises:
        NotFoundError: for an address that is not signed for this name, or that is too old.
    """
    _, signed = service.unsealed("media", signature, MEDIA_LASTS) or ("", "")
    return str(found(signed == name and signed, "file"))
