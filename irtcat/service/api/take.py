"""The taker's interface: what a test taker's device asks for, from the ticket to the score report.

A reply never holds a key, an item parameter, an ability, a standard error, the id of an item or the
reason why it was chosen: the models here list every field that leaves the service.

A browser may have several tests, in several tabs: it holds a cookie for each, and the token in the
header ``X-CSRF-Token``, which belongs to one of them, names the one that a request is about.

Answers carry their id in the header ``Idempotency-Key``, as in the IETF's draft of that name, not
in the body: it belongs to the delivery, so that what retries a request need not read its body.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from pydantic import Field

from irtcat.service.accounts.credentials import HEADER, check_same_site, csrf_token, service_of
from irtcat.service.api.schemas import Body, Out, problems
from irtcat.service.attempts import taking
from irtcat.service.attempts.view import MediaUrl, media_urls
from irtcat.service.storage.context import Service

PREFIX = "/api/v1/take"

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,100}$",
        description="A new id for every answer or step, the same one when it is sent again: "
        "a request that was carried out changes nothing when it is repeated.",
        examples=["4f1c2b6e-answer-7"],
    ),
]

BeginKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{16,100}$",
        description="A random text that nobody can guess. If the reply is lost, the same request "
        "with the same text returns the same device; without it the ticket has to be released.",
        examples=["1b0f3c1e9d8a4c5f-begin"],
    ),
]

Seconds = Annotated[int | None, Field(description="Seconds left; null without a limit.")]


class SectionPlace(Out):
    """Where the taker is."""

    number: int | None = Field(description="Number of the section; null on a page between them.")
    count: int
    kind: str = Field(examples=["adaptive"])
    title: str


class TimeLeft(Out):
    """Time left by the clock of the service."""

    test: Seconds
    section: Seconds
    item: Seconds
    running: bool = Field(description="Whether the time is running.")
    warnings: list[float] = Field(description="Seconds left at which to warn.")
    abandoned_after: float = Field(description="Seconds without a step that end the attempt.")


class Permitted(Out):
    """What the taker may do now."""

    skip: bool
    review: bool
    proceed: bool
    pause: bool
    resume: bool


class ShownChoice(Out):
    """A choice, by its place in this attempt."""

    id: str = Field(examples=["c1"])
    content: str = Field(description="Sanitised HTML; empty in hottext, whose prompt holds it.")
    most: int = Field(description="Most pairs of a response that it may be in; 0 for no limit.")
    area: str = Field(description="Its area on the picture.", examples=["circle 77,115,8"])


class ShownPicture(Out):
    """A picture of which the choices are areas."""

    media: str = Field(description="Address of the picture.")
    alt: str
    width: int = Field(description="In pixels, to which the areas refer.")
    height: int


class ShownField(Out):
    """An answer field: the item, or a part of one with several."""

    kind: str = Field(examples=["choice"])
    part: str = Field(description="Name of the part, in the prompt of the item; empty otherwise.")
    inline: bool = Field(description="Whether the field stands within a sentence.")
    marked: bool = Field(description="Whether the prompt marks the choices, by `data-choice`.")
    prompt: str = Field(description="Sanitised HTML.")
    choices: list[ShownChoice]
    options: list[ShownChoice] = Field(description="What is assigned to the choices of a match.")
    picture: ShownPicture | None
    language: str
    direction: str
    max_choices: int | None
    min_choices: int
    expected_length: int | None
    expected_lines: int | None
    pattern: str
    numeric: bool
    response: str | list[str] | dict[str, str | list[str]] | None


class ShownItem(ShownField):
    number: int = Field(description="Its number in this attempt.")
    parts: list[ShownField] = Field(description="The answer fields of an item with several.")
    stimulus: str | None = Field(description="Sanitised HTML of a text beside the item.")
    stimulus_title: str
    stimulus_language: str
    answered: bool
    flagged: bool


class ListedItem(Out):
    """An item in the list of a section that is reviewed."""

    place: int
    current: bool
    seen: bool
    answered: bool
    flagged: bool


class Advance(Out):
    """Answers in the section, and how many there are, at most."""

    done: int
    of: int


class TopicScore(Out):
    score: float | None
    lower: float | None
    upper: float | None
    n_items: int


class ScoreReport(Out):
    """The score report: only what the test definition shows takers."""

    waiting: bool | None = Field(None, description="True until people have scored all answers.")
    score: float | None = None
    lower: float | None = None
    upper: float | None = None
    interval_level: float | None = None
    level: str | None = None
    topics: dict[str, TopicScore] | None = None


class TakerView(Out):
    """The page that the taker sees now."""

    title: str
    language: str
    status: Literal["running", "paused", "finished", "void"]
    page: Literal["instructions", "item", "answers", "break", "paused", "finished", "void"]
    section: SectionPlace
    time: TimeLeft
    may: Permitted
    saved: int = Field(description="Number of answers on disk.")
    item: ShownItem | None
    items: list[ListedItem]
    text: str = Field(description="HTML of instructions or of a break.")
    progress: Advance
    report: ScoreReport | None


class Begun(Out):
    """The first page, and for programs their token."""

    view: TakerView
    token: str | None = Field(
        None, description="Token of a program, for `Authorization: Bearer`; browsers get a cookie."
    )


class Pulse(Out):
    """Status and time left."""

    status: Literal["running", "paused", "finished", "void"]
    time: TimeLeft


class BeginBody(Body):
    """How the device is known from now on."""

    credential: Literal["cookie", "bearer"] = Field(
        "cookie", description='"cookie" for browsers; "bearer" returns a token and sets no cookie.'
    )


class AnswerBody(Body):
    number: int = Field(ge=1, le=100_000, description="Number of the item, as shown.")
    response: (
        Annotated[str, Field(max_length=200_000)]
        | list[str]
        | dict[str, Annotated[str, Field(max_length=200_000)] | list[str] | None]
        | None
    ) = Field(
        description="A choice's id, a list of them or of pairs (`c1 o2`), a text, or all of these "
        "by the names of parts; null to leave the item out.",
        examples=["c2"],
    )


class GoBody(Body):
    """An item of a section that is reviewed."""

    place: int | None = Field(ge=1, le=100_000, description="Its place; null for the list.")


class FlagBody(Body):
    number: int = Field(ge=1, le=100_000)
    flagged: bool


class Desk:
    """A request of a taker's device: the service, the device and the addresses of media."""

    def __init__(self, request: Request, response: Response):
        self.service = service_of(request)
        device = taking.device_of(request, self.service)
        if device.by_cookie:
            response.headers[HEADER] = csrf_token(self.service, device.secret)
        self.device = device

    @property
    def arguments(self) -> tuple[Service, str, str, MediaUrl]:
        """The first arguments of the functions of `irtcat.service.attempts.taking`."""
        attempt = self.device.attempt
        return self.service, attempt, self.device.secret, media_urls(self.service, attempt)


At = Annotated[Desk, Depends(Desk)]

COOKIE_OR_TOKEN: list[dict[str, list[str]]] = [{"device": []}, {"deviceCookie": [], "csrf": []}]

router = APIRouter(prefix=PREFIX, tags=["taker"])


def _options(*codes: int) -> dict[str, Any]:
    """Options of a route: unset fields of a report stay out; errors and security documented."""
    return {
        "responses": problems(401, 403, *codes),
        "response_model_exclude_unset": True,
        "openapi_extra": {"security": COOKIE_OR_TOKEN},
    }


@router.get("/current", response_model=TakerView, **_options(409))
def current(at: At) -> Any:
    """The page that the taker sees now; time limits that passed are applied."""
    return taking.current(*at.arguments)


@router.post("/answers", response_model=TakerView, **_options(409))
def answers(at: At, body: AnswerBody, key: Key) -> Any:
    """Record an answer; it is on disk when the next page is returned.

    An equal answer to the same item changes nothing, another one is refused where answers stand.
    """
    return taking.answer(*at.arguments, number=body.number, response=body.response, request=key)


@router.post("/go", response_model=TakerView, **_options(409))
def go(at: At, body: GoBody) -> Any:
    """Show an item of a section that is reviewed, or the list of its answers."""
    return taking.go(*at.arguments, place=body.place)


@router.post("/flag", response_model=TakerView, **_options(409))
def flag(at: At, body: FlagBody) -> Any:
    """Mark an item for review, or remove the mark."""
    return taking.flag(*at.arguments, number=body.number, flagged=body.flagged)


@router.post("/proceed", response_model=TakerView, **_options(409))
def proceed(at: At, key: Key) -> Any:
    """End instructions, practice, a break, or a section that is reviewed."""
    return taking.proceed(*at.arguments, request=key)


@router.post("/finish", response_model=TakerView, **_options(409))
def finish(at: At, key: Key) -> Any:
    """End the test, in its last section; elsewhere it is refused."""
    return taking.finish(*at.arguments, request=key)


@router.post("/pause", response_model=TakerView, **_options(409))
def pause(at: At) -> Any:
    """Pause the test, where the person's accommodations permit it."""
    return taking.pause(*at.arguments)


@router.post("/resume", response_model=TakerView, **_options(409))
def resume(at: At) -> Any:
    """Continue after a pause of the taker's own."""
    return taking.resume(*at.arguments)


@router.post("/heartbeat", response_model=Pulse, **_options())
def heartbeat(at: At) -> Any:
    """Status and time left; nothing is written, so that a page may ask every few seconds."""
    return taking.heartbeat(at.service, at.device.attempt, at.device.secret)


@router.post("/leave", status_code=204, **_options())
def leave(at: At, request: Request, response: Response) -> None:
    """Delete the cookie of this attempt; it stays bound to this device until staff release it."""
    taking.check_device(at.service, at.device.attempt, at.device.secret)
    taking.forget_device(request, response, at.device.attempt)


# Last, since its path has the form of all others.
@router.post(
    "/{ticket}",
    responses=problems(403, 404, 409, 410),
    response_model=Begun,
    response_model_exclude_unset=True,
    summary="Begin or continue a test with its ticket",
)
def take(
    ticket: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{16,64}$", description="The ticket.")],
    request: Request,
    response: Response,
    body: BeginBody | None = None,
    key: BeginKey = "",
) -> Any:
    """Bind this device to the attempt: the first time it begins, after a release it continues.

    A browser gets a cookie that scripts cannot read, and in the header `X-CSRF-Token` the token
    that its later requests must send back. Of several tests in one browser it names the one that a
    request is about; send it with GET, too. A program asks for the credential "bearer".
    """
    check_same_site(request)
    service = service_of(request)
    started = taking.begin(service, ticket, key)
    media = media_urls(service, started.attempt)
    view = taking.current(service, started.attempt, started.secret, media)
    if body is not None and body.credential == "bearer":
        return {"view": view, "token": started.token}
    taking.remember_device(request, response, started)
    response.headers[HEADER] = csrf_token(service, started.secret)
    return {"view": view}
