"""A connection of `Client` that keeps words: placeholders go to the server, and words come back."""

import os

import numpy as np

from serving.errors import invalid
from serving.protection import NO_PLACEHOLDERS, PLACEHOLDERS, Protection, read_glossary

AS_IT_IS = "score"  # The signature that reads texts and translations as they are.
TRANSLATIONS = {"translation", "translations"}  # Outputs: one translation of each text, or several.


def protected(connection, glossary, protect):
    """Makes the connection that a client uses.

    Args:
        connection: object with `predict` and `close`; see `serving.client`.
        glossary: dict, source form -> target form; or the path of a file, see `read_glossary`; or None.
        protect: bool, whether URLs, e-mail addresses, numbers with units and the like are protected.

    Returns:
        `Protected`, or the connection itself if there is nothing to protect.

    Raises:
        ValueError: if the glossary cannot be used.
    """
    terms = read_glossary(glossary) if isinstance(glossary, (str, os.PathLike)) else glossary
    return Protected(connection, Protection(terms, patterns=protect)) if terms or protect else connection


class Protected:
    """Hides protected words before a request, and puts the words into the translations. Thread-safe.

    The pieces of `explain` stay as the server sends them, with placeholders.

    Args:
        connection: see `protected`.
        protection: `Protection`.
    """

    def __init__(self, connection, protection):
        self._connection = connection
        self._protection = protection
        self._is_able = False

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature with arrays; see `RestConnection.predict`. Raises ServingError also for a model without
        placeholders."""
        if signature_name == AS_IT_IS:
            return self._connection.predict(signature_name, inputs, timeout_s)
        self._check(timeout_s)
        hidden = [self._protection.hide(text.decode("utf-8")) for text in inputs["text"]]
        inputs = {**inputs, "text": _texts([each.text for each in hidden])}
        outputs = self._connection.predict(signature_name, inputs, timeout_s)
        return {
            name: [_restored(*pair) for pair in zip(hidden, values, strict=True)] if name in TRANSLATIONS else values
            for name, values in outputs.items()
        }

    def close(self):
        """Closes the connection."""
        self._connection.close()

    def _check(self, timeout_s):
        """Asks the server once whether its model reads a placeholder as one piece. Raises ServingError if not."""
        if not self._is_able:
            pieces = self._connection.predict("explain", {"text": _texts(PLACEHOLDERS[:1])}, timeout_s)["source_pieces"]
            if not {PLACEHOLDERS[0], PLACEHOLDERS[0].encode()}.intersection(pieces[0]):
                raise invalid(NO_PLACEHOLDERS)
            self._is_able = True


def _restored(hidden, value):
    """Puts the words into a translation, str or bytes, or into each of several."""
    if isinstance(value, (list, tuple)):
        return [_restored(hidden, each) for each in value]
    return hidden.restore(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)


def _texts(texts):
    array = np.empty(len(texts), object)
    array[:] = [text.encode("utf-8") for text in texts]
    return array
