"""What a model of lm-evaluation-harness said, kept so that an interrupted batch is not paid twice.

lm-eval's own cache holds pickles, which run code when they are read. This file holds JSON.
"""

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irtcat._reading import numbered_lines

__all__ = ["Replies", "append"]

METHODS = ("generate_until", "loglikelihood", "loglikelihood_rolling")
SCALARS = (str, bool, int, float)


class Replies:
    """The replies to requests of lm-eval, in a file with a JSON object a line.

    A request is known by its method, its task, its document, its number among those of the
    document, and its arguments. Two different documents with one prompt have a reply each.
    """

    def __init__(self, path: Path):
        """Read the replies that there are.

        Args:
            path: the file; it need not exist.
        """
        self.path = path
        self._known: dict[str, Any] = dict(_read(path))
        self._waiting: dict[str, deque[str]] = {}

    @contextmanager
    def kept(self, model: Any) -> Iterator[None]:
        """While this is open the model gives known replies again, and new ones are kept.

        Args:
            model: an object of lm-eval's class LM; it is afterwards as it was before.
        """
        own, hook = dict(vars(model)), getattr(model, "cache_hook", None)
        for method in METHODS:
            setattr(model, method, self._replying(method, getattr(model, method)))
        model.cache_hook = self
        try:
            yield
        finally:
            model.cache_hook = hook
            for method in METHODS:
                if method in own:
                    setattr(model, method, own[method])
                else:
                    delattr(model, method)

    def _replying(self, method: str, ask: Callable[..., Any]) -> Callable[..., list[Any]]:
        """A method of the model that asks only what has no reply yet."""

        def answer(requests: list[Any], **options: Any) -> list[Any]:
            keys = list(_keys(method, requests))
            left = [i for i, key in enumerate(keys) if key not in self._known]
            self._waiting = {}
            for i in left:
                place = self._waiting.setdefault(_digest(method, *requests[i].args), deque())
                place.append(keys[i])
            out = [self._known.get(key) for key in keys]
            if left:
                said = ask([requests[i] for i in left], **options)
                for i, reply in zip(left, said, strict=True):
                    out[i] = reply
                    self._keep(keys[i], reply)
            return out

        return answer

    def add_partial(self, method: str, args: Any, reply: Any) -> None:
        """Keep a reply as soon as the model has it; models call this of their cache."""
        if keys := self._waiting.get(_digest(method, *args)):
            self._keep(keys.popleft(), reply)

    def _keep(self, key: str, reply: Any) -> None:
        if key in self._known or not _is_plain(reply):
            return
        self._known[key] = reply
        append(self.path, [{"key": key, "reply": reply}])


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add JSON lines to a file; they are on the disk when this returns."""
    text = "".join(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows)
    with path.open("ab") as file:
        file.write(text.encode("utf-8", errors="backslashreplace"))
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    """The replies of a file; a line that a killed process did not finish is left out."""
    lines = list(numbered_lines(path)) if path.exists() else []
    for _, line, _ in lines:
        try:
            row = json.loads(line)  # not parse_json: a model's halves of characters stay
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
    """Whether JSON gives the reply back as it was."""
    parts = reply if isinstance(reply, tuple) else (reply,)
    return all(type(part) in SCALARS for part in parts)


def _keys(method: str, requests: list[Any]) -> Iterator[str]:
    """What each request is known by; a request that is there twice is asked twice."""
    seen: Counter[str] = Counter()
    for request in requests:
        # Not doc_id: of a reduced run that is the place in the list of documents, which changes.
        known = (getattr(request, name, None) for name in ("task_name", "doc", "idx"))
        key = _digest(method, *known, *request.args)
        seen[key] += 1
        yield f"{key}-{seen[key]}"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()
