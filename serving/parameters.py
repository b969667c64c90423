"""The parameters of a request of LibreTranslate's API: those of its URL, and of a body in JSON or of a form.

A body of any kind is read in some hundredths of a second, or refused before that.
"""

import asyncio
import codecs
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import regex
from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from serving.errors import invalid
from serving.http_server import read_body

MOST_BYTES = 2**20  # Of a body.
MOST_FIELDS = 100  # Of a form.
MOST_VALUES = 20_000  # Texts, lists, objects and members in JSON. Python's parser would make a million in a second.

NO_JSON = "Invalid JSON format"
LARGE = 2**14  # Bytes.

_READING = ThreadPoolExecutor(1, "reading")
_STRING = regex.compile(rb'"(?:[^"\\]|\\.?)*+(?:"|$)', regex.DOTALL)  # of JSON, whole or not
_DIGITS = np.full(256, 16, np.uint8)  # byte -> its value as a hexadecimal digit, 16 for all others
_DIGITS[list(b"0123456789abcdef")] = range(16)
_DIGITS[list(b"ABCDEF")] = range(10, 16)


async def read_parameters(request, lists=()):
    """Reads the parameters of a `starlette.requests.Request`: dict. Raises ServingError or HTTPException.

    Those of the URL come before those of the body. In both, except in JSON, the names `lists` have lists of str.
    """
    body, (kind, _) = await read_body(request, MOST_BYTES, timeout_s=30.0), content_type(request)
    query = query_of(request, lists)
    if kind == "application/json" or kind.endswith("+json"):
        return {**await _aside(_object_of, body), **query}
    form = {**await form_of(request, body, lists=lists), **query}
    return {**form, "q": "\n".join(form["q"].splitlines())} if isinstance(form.get("q"), str) else form


def query_of(request, lists=()):
    """Reads the parameters of a URL: dict, name -> str; of the names `lists` -> list of str. Raises ServingError."""
    return _fields(request.scope["query_string"], lists)


def content_type(request):
    """Returns the type of a body in lower case, such as "text/html", and its options, dict of bytes."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    return kind.decode("latin-1").strip().lower(), options


async def form_of(request, body, most_files=0, lists=()):
    """Reads a form: dict, name -> str or `UploadFile`; of the names `lists` -> list of them.

    Raises ServingError or HTTPException.
    """
    kind, options = content_type(request)
    if kind != "multipart/form-data":
        return await _aside(lambda body: _fields(body, lists), body)

    async def replay():
        return {"type": "http.request", "body": body}

    # Another charset could write what UTF-8 cannot, so none is passed on.
    boundary = options.get(b"boundary", b"").translate(None, b'\\"')  # No boundary may have these two.
    header = b'multipart/form-data; boundary="' + boundary + b'"' if boundary else b"multipart/form-data"
    asked = Request({**request.scope, "headers": [(b"content-type", header)]}, replay)
    found = await asked.form(max_files=most_files, max_fields=MOST_FIELDS)
    return {**found, **{name: found.getlist(name) for name in lists if name in found}}


async def _aside(read, body):
    """Reads a body, a large one in a thread, so that the event loop can serve others between two of them."""
    return await asyncio.get_running_loop().run_in_executor(_READING, read, body) if len(body) > LARGE else read(body)


def _object_of(body):
    """Reads an object in JSON. Raises ServingError for other values, and for too many."""
    if not body.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        raise invalid(NO_JSON)
    quotes = body.count(b'"') - body.count(b'\\"')
    if quotes > 2 * MOST_VALUES or sum(map(_STRING.sub(b"", body).count, (b",", b"[", b"{", b":"))) > MOST_VALUES:
        raise invalid(f"Invalid request: a body may have {MOST_VALUES} values")
    try:
        found = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise invalid(NO_JSON)
    return found


def _fields(body, lists=()):
    """Reads the fields of a form in the encoding of a URL: dict, name -> str. Of equal names, the first one counts.

    A name of `lists` has the list of all values. Other names have no empty ones.
    """
    if body.count(b"&") >= MOST_FIELDS:
        raise invalid(f"Invalid request: a form may have {MOST_FIELDS} fields")
    parts = (each.partition(b"=") for each in body.split(b"&"))
    pairs = ((_unquoted(name), _unquoted(value)) for name, _, value in parts)
    fields = [(name, value) for name, value in pairs if value or name in lists]
    several = {name: [value for other, value in fields if other == name] for name in lists}
    return {**dict(reversed(fields)), **{name: values for name, values in several.items() if values}}


def _unquoted(data):
    """Decodes + and %XX: bytes -> str. Python's own function takes a second for a million of "%"."""
    codes = np.frombuffer(data.replace(b"+", b" "), np.uint8)
    digits = _DIGITS[codes]
    places = np.flatnonzero(codes[:-2] == ord("%"))
    places = places[(digits[places + 1] < 16) & (digits[places + 2] < 16)]
    decoded, is_left = codes.copy(), np.ones(len(codes), bool)
    decoded[places] = 16 * digits[places + 1] + digits[places + 2]
    is_left[places + 1] = is_left[places + 2] = False
    return decoded[is_left].tobytes().decode("utf-8", "replace")
