"""The staff's interface of webhooks."""

from typing import Annotated, Any, Literal

from pydantic import Field

from irtcat.service.accounts.credentials import Acting
from irtcat.service.api.schemas import Body, Cut, Id, Out, Page, StaffRouter, needs
from irtcat.service.outbox import webhooks

router = StaffRouter(prefix="/api/v1")


Admin = Annotated[Acting, needs("webhooks")]


class WebhookBody(Body):
    url: str = Field(max_length=2000, examples=["https://example.org/irtcat"])
    events: list[Annotated[str, Field(max_length=100)]] = Field(
        max_length=100, description=f"Some of {', '.join(webhooks.EVENTS)}."
    )


class WebhookChange(Body):
    """Changes of a webhook; what is left out stays."""

    url: str | None = Field(None, max_length=2000)
    events: list[Annotated[str, Field(max_length=100)]] | None = Field(None, max_length=100)
    status: Literal["open", "disabled"] | None = None


class WebhookRow(Out):
    id: str
    url: str
    events: list[str]
    status: str
    created: str
    waiting: int = Field(description="Messages that are still to be delivered.")
    failed: int


def _private(at: Acting) -> bool:
    return bool(at.request.app.state.private_webhooks)


@router.get("/webhooks", response_model=Page[WebhookRow])
def list_webhooks(at: Admin, cut: Cut) -> Any:
    """Webhooks, with the numbers of messages that wait or failed."""
    return cut.page(webhooks.webhook_table(at.service), "id")


@router.post("/webhooks", response_model=webhooks.Webhook, status_code=201)
def add_webhook(at: Admin, body: WebhookBody) -> Any:
    """Send messages about events to an address."""
    given = body.model_dump()
    return webhooks.add_webhook(at.service, actor=at.actor, private=_private(at), **given)


@router.patch("/webhooks/{webhook}", status_code=204)
def change_webhook(webhook: Id, at: Admin, body: WebhookChange) -> None:
    """Change a webhook; "open" lets a disabled one go on."""
    changes = body.model_dump()
    webhooks.change_webhook(at.service, webhook, actor=at.actor, private=_private(at), **changes)


@router.delete("/webhooks/{webhook}", status_code=204)
def remove_webhook(webhook: Id, at: Admin) -> None:
    """Remove a webhook with its messages."""
    webhooks.remove_webhook(at.service, webhook, actor=at.actor)
