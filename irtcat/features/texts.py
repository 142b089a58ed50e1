"""Numbers that describe texts: counts, weights of words, or an embedding."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief, check_count
from irtcat._common.lazy import optional_module

PATTERNS = {
    "words": r"\w+",
    "digits": r"\d",
    "lines": r"\n",
    "questions": r"\?",
    "capitals": r"[A-Z]",
    "symbols": r"[^\w\s.,;:!?'\"()-]",
}
"""What is counted in a text, as regular expressions."""


def text(
    texts: Any, *, encoder: Any = None, max_words: int = 2000, min_items: int = 2
) -> dict[str, pd.DataFrame]:
    """Tables of features of texts, for ``item_features`` of `irtcat.fit`.

    Give all items at once, calibrated ones and new ones: the columns then mean the same for all.

    Args:
        texts: the items' texts: a Series by item id, or a mapping from ids to texts.
        encoder: turns texts into numbers: any object with ``encode(list of texts)``, such as a
            model of sentence-transformers. By default the weights of words and pairs of words
            (TF-IDF with sublinear counts, Salton & Buckley 1988) by scikit-learn (extra ``text``).
        max_words: number of words and pairs to keep, the most frequent ones.
        min_items: a word must occur in so many items.

    Returns:
        Two tables by item id, whose coefficients have a variance each in a fit: "counts" (logarithm
        of 1 + the numbers of characters, words, digits, lines, questions, capitals and symbols),
        and "words" or "embedding".

    Raises:
        InputError: for ids that repeat, a value that is no text, an encoder whose numbers are
            not finite or not one row per text, or without scikit-learn.

    Example:
        >>> questions = {"q1": "What is 2 + 3?", "q2": "What is the capital of Peru?"}
        >>> tables = text(questions)
        >>> sorted(tables), tables["counts"]["digits"].round(2).tolist()
        (['counts', 'words'], [1.1, 0.0])

    References:
        Salton & Buckley (1988), Information Processing & Management 24, 513-523.
    """
    if isinstance(texts, Mapping):
        texts = pd.Series(dict(texts), dtype=object)
    if not isinstance(texts, pd.Series) or not len(texts):
        must = "a Series or mapping of texts by item id, not empty"
        raise argument_error("texts", must, type(texts).__name__)
    check_count("max_words", max_words)
    check_count("min_items", min_items)
    ids = pd.Index([str(item) for item in texts.index], dtype=object)
    if ids.has_duplicates:
        raise argument_error("texts", "one an item", f"{ids[ids.duplicated()][0]!r} twice")
    for item, value in zip(ids, texts, strict=True):
        if not isinstance(value, str):
            raise argument_error("texts", "texts", f"{brief(value)} for item {item!r}")
    values = texts.set_axis(ids).astype(object)
    counts = {"characters": values.map(len)}
    counts |= {name: values.str.count(pattern) for name, pattern in PATTERNS.items()}
    tables = {"counts": pd.DataFrame(counts).astype(float).map(np.log1p)}
    if encoder is None:
        tables["words"] = _words(values, max_words, min_items)
    else:
        tables["embedding"] = _embedding(values, encoder)
    return tables


def _words(values: pd.Series, max_words: int, min_items: int) -> pd.DataFrame:
    """TF-IDF weights."""
    missing = "Weights of words need scikit-learn. Install it with: pip install 'irtcat[text]'."
    weights = optional_module("sklearn.feature_extraction.text", missing).TfidfVectorizer(
        sublinear_tf=True,
        ngram_range=(1, 2),
        max_features=max_words,
        min_df=min(min_items, len(values)),
        token_pattern=r"(?u)\b\w+\b",
    )
    try:
        matrix = weights.fit_transform(values)
    except ValueError:  # no word is in so many texts
        return pd.DataFrame({"none": np.zeros(len(values))}, index=values.index)
    return pd.DataFrame(
        matrix.toarray(), index=values.index, columns=weights.get_feature_names_out()
    )


def _embedding(values: pd.Series, encoder: Any) -> pd.DataFrame:
    """The encoder's numbers."""
    if not callable(getattr(encoder, "encode", None)):
        must = "an object with a method encode, which takes a list of texts"
        raise argument_error("encoder", must, type(encoder).__name__)
    matrix = np.asarray(encoder.encode(values.tolist()), float)
    if matrix.ndim != 2 or len(matrix) != len(values) or not np.isfinite(matrix).all():
        must = f"one whose encode gives a row of finite numbers for each of the {len(values)} texts"
        raise argument_error("encoder", must, f"an array of shape {matrix.shape}")
    names = [f"e{number}" for number in range(matrix.shape[1])]
    return pd.DataFrame(matrix, index=values.index, columns=names)
