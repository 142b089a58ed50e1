"""Cache of the replies of an lm-evaluation-harness model: an interrupted batch is not paid twice.

lm-eval's own cache contains pickles, which run code when they are read. This file contains JSON.
"""

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irtcat._files.reading import numbered_lines

METHODS = ("generate_until", "loglikelihood", "loglikelihood_rolling")
SCALARS = (str, bool, int, float)


class Replies:
    """The replies to requests of lm-eval, in a JSON lines file.

    A request is identified by its method, task, document, number within the document, and
    arguments. Two documents with the same prompt have separate replies.
    """

    def __init__(self, path: Path):
        """Read the stored replies.

        Args:
            path: the file; it need not exist.
        """
        self.path = path
        self._replies: dict[str, Any] = dict(_read(path))
        self._waiting: dict[str, deque[str]] = {}

    @contextmanager
    def cached(self, model: Any) -> Iterator[None]:
        """Within this context the model reuses stored replies, and new ones are stored.

        Args:
            model: an object of lm-eval's class LM; it is restored at the end.
        """
        attributes, hook = dict(vars(model)), getattr(model, "cache_hook", None)
        for method in METHODS:
            setattr(model, method, self._replying(method, getattr(model, method)))
        model.cache_hook = self
        try:
            yield
        finally:
            model.cache_hook = hook
            for method in METHODS:
                if method in attributes:
                    setattr(model, method, attributes[method])
                else:
                    delattr(model, method)

    def _replying(self, method: str, ask: Callable[..., Any]) -> Callable[..., list[Any]]:
        """A method of the model that only asks requests without a stored reply."""

        def answer(requests: list[Any], **options: Any) -> list[Any]:
            keys = list(_keys(method, requests))
            unanswered = [i for i, key in enumerate(keys) if key not in self._replies]
            self._waiting = {}
            for i in unanswered:
                queue = self._waiting.setdefault(_digest(method, *requests[i].args), deque())
                queue.append(keys[i])
            replies = [self._replies.get(key) for key in keys]
            if unanswered:
                new_replies = ask([requests[i] for i in unanswered], **options)
                for i, reply in zip(unanswered, new_replies, strict=True):
                    replies[i] = reply
                    self._store(keys[i], reply)
            return replies

        return answer

    def add_partial(self, method: str, args: Any, reply: Any) -> None:
        """Store a reply as soon as the model returns it; models call this method of their cache."""
        if keys := self._waiting.get(_digest(method, *args)):
            self._store(keys.popleft(), reply)

    def _store(self, key: str, reply: Any) -> None:
        if key in self._replies or not _is_plain(reply):
            return
        self._replies[key] = reply
        append(self.path, [{"key": key, "reply": reply}])


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Append JSON lines to a file; they are on disk when this returns."""
    text = "".join(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows)
    with path.open("ab") as file:
        file.write(text.encode("utf-8", errors="backslashreplace"))
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    """The replies of a file, without a line that a killed process did not finish."""
    lines = list(numbered_lines(path)) if path.exists() else []
    for _, line, _ in lines:
        try:
            row = json.loads(
                line
            )  # not parse_json: it must keep lone surrogates of a model's reply
            key, reply = row["key"], row["reply"]
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
        reply = tuple(reply) if isinstance(reply, list) else reply
        if isinstance(key, str) and _is_plain(reply):
            yield key, reply
    if lines and not lines[-1][2]:
        with path.open("ab") as file:
            file.write(b"\n")


def _is_plain(reply: Any) -> bool:
    """Whether JSON preserves the reply."""
    parts = reply if isinstance(reply, tuple) else (reply,)
    return all(type(part) in SCALARS for part in parts)


def _keys(method: str, requests: list[Any]) -> Iterator[str]:
    """The key of each request; a repeated request gets a number, so that it is asked again."""
    counts: Counter[str] = Counter()
    for request in requests:
        # Not doc_id: in a reduced run that is the position in the list of documents, which changes.
        identity = (getattr(request, name, None) for name in ("task_name", "doc", "idx"))
        key = _digest(method, *identity, *request.args)
        counts[key] += 1
        yield f"{key}-{counts[key]}"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()
