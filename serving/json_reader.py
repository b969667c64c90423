"""Reads JSON as TensorFlow Serving's parser does: the same documents, the same errors, any depth, any length.

Python's parser in C reads ordinary documents. It holds Python's global lock, it counts the depth, and its errors are
other ones. `read_stepwise` therefore reads all documents that are long, deep, wrong or unusual.
"""

import itertools
import json
import math
import re
import time
from json.decoder import scanstring

from grpc import StatusCode

from serving.errors import ServingError, invalid

SHORT = 2**20  # Bytes that Python's parser may read while other threads wait: up to a twentieth of a second.
MOST_HOLDERS = 2**22  # Lists, objects and members of a long document. More would take gigabytes.
BLANKS = re.compile(r"[ \t\n\r]*")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]*)?")
FLAT = r'[^][{}"]*(?:"[^"\\]*"[^][{}"]*)*'  # The inside of a list or an object without lists and objects.
ITEMS = re.compile(rf'(?:\s*(?:\[{FLAT}\]|\{{{FLAT}\}}|"[^"\\]*"|[^][{{}}",\s]+)\s*,)+')
WINDOW = 2**16  # Characters of items that Python's parser reads at once.
STEPS = 2**12  # Steps between two looks at the clock.
# A number that may be too large or that Python reads slowly, or half of a surrogate pair.
UNUSUAL = re.compile(
    r"[eE]\+?[0-9]{3}|[0-9]{300}|\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F])"
)
# An escape. The group holds the first half of a surrogate pair without the second half, or the reverse.
ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|(u[dD][89a-fA-F])|.)", re.DOTALL)
LARGEST_EXPONENT = 308
CONSTANTS = {"n": ("null", None), "t": ("true", True), "f": ("false", False)}
STRING_ERRORS = {
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
}


def parse(body, deadline=math.inf):
    """Parses a body. Ignores all text after the document. Of members with equal names, the first counts.

    Args:
        body: bytes. NaN, Inf and Infinity are numbers. Bytes that are not UTF-8 become surrogates.
        deadline: `time.monotonic()` at which the client gives up.

    Returns:
        dict, list, str, int, float, bool or None.

    Raises:
        ServingError: INVALID_ARGUMENT, with TensorFlow Serving's message, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    if len(body) > SHORT and sum(map(body.count, (b"[", b"{", b":"))) > MOST_HOLDERS:
        message = f"A document may have {MOST_HOLDERS} lists, objects and members."
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, message)
    text = body.decode("utf-8", "surrogateescape")
    start = _skip(text, text.startswith("\ufeff"))
    if len(body) <= SHORT and not UNUSUAL.search(text):
        try:
            return DECODER.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            pass
    return read_stepwise(text, start, deadline)


def first_of_each(pairs):
    """Makes a dict of pairs. Of pairs with equal names, the first counts."""
    members = dict(pairs)
    return members if len(members) == len(pairs) else dict(reversed(pairs))


DECODER = json.JSONDecoder(object_pairs_hook=first_of_each)


def read_stepwise(text, start, deadline=math.inf):
    """Reads the document at `start` of a text; see `parse`. Does not recurse. Lets other threads run."""
    text += "\0"  # No position is beyond the end.
    if text[start] in "\0,:]}":
        raise _error("The document is empty.", text, start)
    place, holders, names = start, [], []  # The open lists and objects, and the names of the members in the objects.
    for step in itertools.count():
        if step % STEPS == 0 and time.monotonic() > deadline:
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out reading the JSON document.")
        if holders and isinstance(holders[-1], list):
            place = _simple_items(text, place, holders[-1])
        if text[place] in "[{":
            is_list = text[place] == "["
            holders.append([] if is_list else {})
            place = _skip(text, place + 1)
            if text[place] != "]}"[not is_list]:
                place = place if is_list else _name(text, place, names)
                continue
            value, place = holders.pop(), place + 1
        else:
            value, place = _scalar(text, place)
        while holders:  # `value` is complete, and the next character says how its list or object goes on.
            holder, place = holders[-1], _skip(text, place)
            is_list = isinstance(holder, list)
            if is_list:
                holder.append(value)
            else:
                holder.setdefault(names.pop(), value)
            if text[place] == ",":
                place = _skip(text, place + 1)
                place = place if is_list else _name(text, place, names)
                break
            if text[place] != "]}"[not is_list]:
                missing = "] after an array element." if is_list else "} after an object member."
                raise _error(f"Missing a comma or {missing}", text, place)
            value, place = holders.pop(), place + 1
        else:
            return value


def _skip(text, place):
    return BLANKS.match(text, place).end()


def _simple_items(text, place, items):
    """Reads many items of a list at once with Python's parser, where possible. Returns the place of the next item."""
    while (match := ITEMS.match(text, place, place + WINDOW)) and not UNUSUAL.search(match[0]):
        try:
            items += DECODER.decode(f"[{match[0][:-1]}]")
        except ValueError:
            break
        place = _skip(text, match.end())
    return place


def _scalar(text, place):
    """Reads a string, a number or a constant. Returns the value and the place after it."""
    char = text[place]
    if char == '"':
        return _string(text, place)
    if char not in CONSTANTS:
        return _number(text, place)
    word, value = CONSTANTS[char]
    return value, _end_of_word(text, place, word)


def _end_of_word(text, place, word):
    for index, letter in enumerate(word):
        if text[place + index] != letter:
            raise _error("Invalid value.", text, place + index)
    return place + len(word)


def _number(text, place):
    match = NUMBER.match(text, place)
    if match is None:
        start = place + (text[place] == "-")
        word = "NaN" if text[start] == "N" else "Infinity" if text.startswith("Infi", start) else "Inf"
        end = _end_of_word(text, start, word)
        return float(text[place:end]), end
    digits, fraction, exponent = match.groups()
    if fraction == ".":
        raise _error("Miss fraction part in number.", text, match.end(2))
    if exponent and not exponent[-1].isdigit():
        raise _error("Miss exponent in number.", text, match.end(3))
    is_whole = not fraction and not exponent and len(digits) <= 20
    value = int(match[0]) if is_whole else float(match[0])
    if math.isinf(value) or (exponent and float(exponent[1:]) > LARGEST_EXPONENT + len((fraction or ".")[1:])):
        raise _error("Number too big to be stored in double.", text, place)
    return value if not is_whole or -(2**63) <= value < 2**64 else float(value), match.end()


def _string(text, place):
    try:
        value, end = scanstring(text, place + 1, True)
    except json.JSONDecodeError as error:
        is_hex = "uXXXX" in error.msg
        is_cut = text[error.pos] == "\0"
        reason = "Missing a closing quotation mark in string." if is_cut else STRING_ERRORS[error.msg]
        raise _error(reason, text, error.pos - is_hex) from None
    for escape in ESCAPE.finditer(text, place, end):
        if escape[1]:
            raise _error("The surrogate pair in string is invalid.", text, escape.start())
    return value, end


def _name(text, place, names):
    """Reads the name of a member into `names`. Returns the place of the member's value."""
    if text[place] != '"':
        raise _error("Missing a name for object member.", text, place)
    name, place = _string(text, place)
    place = _skip(text, place)
    if text[place] != ":":
        raise _error("Missing a colon after a name of object member.", text, place)
    names.append(name)
    return _skip(text, place + 1)


def _error(reason, text, place):
    offset = len(text[:place].encode("utf-8", "surrogateescape"))
    return invalid(f"JSON Parse error: {reason} at offset: {offset}")
