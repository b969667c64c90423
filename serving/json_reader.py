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

SHORT = 2**20  # Characters that Python's parser may read while other threads wait: up to a twentieth of a second.
BLANKS = re.compile(r"[ \t\n\r]*")
NUMBER = re.compile(r"-?(?:(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]*)?|NaN|Inf(?:inity)?)")
FLAT = r'[^][{}"]*(?:"[^"\\]*"[^][{}"]*)*'  # The inside of a list or an object without lists and objects.
ITEMS = re.compile(rf'(?:\s*(?:\[{FLAT}\]|\{{{FLAT}\}}|"[^"\\]*"|[^][{{}}",\s]+)\s*,)+')
WINDOW = 2**16  # Characters of items that Python's parser reads at once.
GIANT = 2**16  # Items of a list that is emptied bit by bit, because Python frees a whole list while other threads wait.
DEEPEST = 2**9  # Levels of lists and objects that are kept. A tensor has 32 at most, a message quotes 256 at most.
DROPPED = [], {}  # What stands for the lists and objects that are not kept. They stay empty.
STEPS = 2**12  # Steps between two looks at the clock.
UNUSUAL = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{300}")  # A number that may be too large, or that Python reads slowly.
CONSTANTS = {"n": ("null", None), "t": ("true", True), "f": ("false", False)}
STRING_ERRORS = {
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
}


def parse(body, deadline=math.inf, giants=None, wanted=None):
    """Parses a body. Ignores all text after the document. Of members with equal names, the first counts.

    Args:
        body: bytes. NaN, Inf and Infinity are numbers. Bytes that are not UTF-8 become surrogates.
        deadline: `time.monotonic()` at which the client gives up.
        giants: list that receives all giant lists and objects of the document, for `free`.
        wanted: names of members; what is in other members of a long document may be dropped. None keeps all.

    Returns:
        dict, list, str, int, float, bool or None.

    Raises:
        ServingError: INVALID_ARGUMENT, with TensorFlow Serving's message, or DEADLINE_EXCEEDED.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    start = len(body) - len(body.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\n\r"))
    if start == len(body):
        raise invalid(f"JSON Parse error: The document is empty. at offset: {start}")
    text = body.decode("utf-8", "surrogateescape")
    start = len(body[:start].decode("utf-8"))
    if len(text) <= SHORT and not UNUSUAL.search(text):
        try:
            return DECODER.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            pass
    return read_stepwise(text, start, deadline, [] if giants is None else giants, wanted)


def free(giants):
    """Empties lists and objects that `parse` has found to be giant. Lets other threads run."""
    for giant in giants:
        while giant:
            if isinstance(giant, dict):
                giant.popitem()
            else:
                del giant[-GIANT:]


def first_of_each(pairs):
    """Makes a dict of pairs. Of pairs with equal names, the first counts."""
    members = dict(pairs)
    return members if len(members) == len(pairs) else dict(reversed(pairs))


DECODER = json.JSONDecoder(object_pairs_hook=first_of_each)


def read_stepwise(text, start, deadline, giants, wanted=None):
    """Reads the document at `start` of a text; see `parse`. Does not recurse. Lets other threads run.

    The document is checked as a whole, but lists and objects below `DEEPEST` levels are empty.
    """
    text += "\0"  # No position is beyond the end.
    if text[start] in "\0,:]}":
        raise _error("The document is empty.", text, start)
    place, open_ones, names = start, [], []
    for step in itertools.count():
        if step % STEPS == 0 and time.monotonic() > deadline:
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out reading the JSON document.")
        drops = bool(wanted is not None and names and isinstance(open_ones[0], dict) and names[0] not in wanted)
        if open_ones and isinstance(open_ones[-1], list):
            place = _simple_items(text, place, None if _is_dropped(open_ones[-1]) else open_ones[-1], giants)
        value, place = _begin(text, place)
        if value is None:  # A list or an object begins.
            is_list = text[place] == "["
            is_kept = len(open_ones) < DEEPEST and not drops
            open_ones.append(([] if is_list else {}) if is_kept else DROPPED[not is_list])
            place = _skip(text, place + 1)
            if text[place] != "]}"[not is_list]:
                if not is_list:
                    place = _name(text, place, names)
                continue
            value, place = open_ones.pop(), place + 1
        else:
            (value,) = value
        while open_ones:  # `value` is complete, and the next character says how its list or object goes on.
            holder, place = open_ones[-1], _skip(text, place)
            is_list = isinstance(holder, list)
            name = None if is_list else names.pop()
            if _is_dropped(holder):
                pass
            elif is_list:
                holder.append(value)
            else:
                holder.setdefault(name, value)
            if len(holder) == GIANT:
                giants.append(holder)
            if text[place] == ",":
                place = _skip(text, place + 1)
                if not is_list:
                    place = _name(text, place, names)
                break
            if text[place] != "]}"[not is_list]:
                missing = "] after an array element." if is_list else "} after an object member."
                raise _error(f"Missing a comma or {missing}", text, place)
            value, place = open_ones.pop(), place + 1
        else:
            return value


def _is_dropped(holder):
    return holder is DROPPED[0] or holder is DROPPED[1]


def _skip(text, place):
    return BLANKS.match(text, place).end()


def _simple_items(text, place, items, giants):
    """Reads many items of a list at once with Python's parser, where possible. Returns the place of the next item."""
    while (match := ITEMS.match(text, place, place + WINDOW)) and not UNUSUAL.search(match[0]):
        try:
            found = DECODER.decode(f"[{match[0][:-1]}]")
        except ValueError:
            break
        place = _skip(text, match.end())
        if items is None:
            continue
        items += found
        if len(items) >= GIANT and not (giants and giants[-1] is items):
            giants.append(items)
    return place


def _begin(text, place):
    """Reads a value: ((value,), the place after the value), or (None, place) at the bracket of a list or an object."""
    char = text[place]
    if char in "[{":
        return None, place
    if char == '"':
        value, place = _string(text, place)
        return (value,), place
    if char in CONSTANTS:
        word, value = CONSTANTS[char]
        for index, letter in enumerate(word):
            if text[place + index] != letter:
                raise _error("Invalid value.", text, place + index)
        return (value,), place + len(word)
    return _number(text, place)


def _number(text, place):
    match = NUMBER.match(text, place)
    if match is None:
        raise _error("Invalid value.", text, place + (text[place] == "-"))
    digits, fraction, exponent = match.groups()
    if fraction == ".":
        raise _error("Miss fraction part in number.", text, match.end(2))
    if exponent and not exponent[-1].isdigit():
        raise _error("Miss exponent in number.", text, match.end(3))
    is_whole = digits and not fraction and not exponent and len(digits) <= 20
    value = int(match[0]) if is_whole else float(match[0])
    if digits and value in (float("inf"), float("-inf")):
        raise _error("Number too big to be stored in double.", text, place)
    return (value if not is_whole or -(2**63) <= value < 2**64 else float(value),), match.end()


def _string(text, place):
    try:
        return scanstring(text, place + 1, True)
    except json.JSONDecodeError as error:
        is_cut = error.msg not in STRING_ERRORS or text[error.pos] == "\0"
        reason = "Missing a closing quotation mark in string." if is_cut else STRING_ERRORS[error.msg]
        raise _error(reason, text, len(text) - 1 if is_cut else error.pos) from None


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
