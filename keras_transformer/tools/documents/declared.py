"""What a document declares of itself: its charset and its language. A translation declares its own."""

import codecs
import re

from keras_transformer import tags
from keras_transformer.errors import UserError
from keras_transformer.languages import LONGEST_CODE, locale_of, parts_of
from keras_transformer.tools.documents.code import SIGN, find_code, hidden

# Where a format names its charset, which the pattern has as a group. Comments are no declarations.
_XML = r"(?s)\A\ufeff?\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([^\"']+)"
_HTML = r"(?si)<!--.*?-->|<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([^\s\"'/>;]+)"
_PO = r"(?m)^[ \t]*(?:msgstr[ \t]*)?\"[^\n]*\bcharset=([^\s\\\";]+)"
CHARSETS = {**dict.fromkeys(("xliff", "android", "resx", "qt"), (_XML,)), "html": (_XML, _HTML), "po": (_PO,)}
LONGEST_HEAD = 4096  # characters in which HTML and catalogues declare their charset
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# A browser reads these charsets as larger ones: https://encoding.spec.whatwg.org/#names-and-labels
BROWSERS = {
    **dict.fromkeys(("iso8859-1", "ascii"), "cp1252"),
    **{"iso8859-9": "cp1254", "tis-620": "cp874", "iso8859-11": "cp874", "gb2312": "gb18030", "gbk": "gb18030"},
    **{"shift_jis": "cp932", "euc_kr": "cp949"},
}
CDATA = re.compile(r"<!\[CDATA\[.*?\]\]>", re.DOTALL)
LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")


def read_text(data, format, path):
    """Decodes a document.

    Args:
        data: bytes.
        format: name, of `files.FORMATS`.
        path: of the document, for errors.

    Returns:
        (str, the name of its charset for Python).

    Raises:
        UserError: for a charset that does not exist, and for bytes that it does not have.
    """
    charset = next((charset for mark, charset in MARKS.items() if data.startswith(mark)), None)
    charset = charset or _declared_charset(data, format, path)
    try:
        return data.decode(charset), charset
    except UnicodeDecodeError as error:
        if format == "properties":  # as Java reads them
            return data.decode("latin-1"), "latin-1"
        raise UserError(
            f"{path} is not {charset.upper()}: {error.reason} at byte {error.start}. Save it as UTF-8"
        ) from error


def _declared_charset(data, format, path):
    head = data[:LONGEST_HEAD].decode("latin-1")
    found = _declarations(head, format)
    if not found or head[slice(*found[0])] == "CHARSET":  # as gettext writes it in a template
        return "utf-8"
    declared = head[slice(*found[0])]
    try:
        codec = codecs.lookup(declared)
        "".encode(codec.name)  # refuses what is no charset, such as base64
    except (LookupError, ValueError):
        raise UserError(
            f"{path} declares a charset that does not exist: save it as UTF-8. Received: {declared[:60]!r}"
        ) from None
    name = BROWSERS.get(codec.name, codec.name) if format == "html" else codec.name
    return "utf-8" if name.startswith("utf-16") else name  # its bytes would begin with a mark


def _declarations(text, format):
    """The places of the names of charsets in a document: list of (start, end). One that code writes is no name."""
    found, head = [], text[:LONGEST_HEAD]
    if format == "html":
        head = hidden(head, find_code(head))
    for pattern in CHARSETS.get(format, ()):
        spans = [match.span(1) for match in re.finditer(pattern, head) if match[1] and SIGN not in match[1]]
        found += spans[:1]
    return found


def write_text(text, charset, format):
    """Encodes a document in its charset, or else in UTF-8, and then its declaration says so.

    HTML and XML have references for characters that the charset lacks.

    Args:
        text: str.
        charset, format: see `read_text`.

    Returns:
        bytes.
    """
    declared = {text[start:end] for start, end in _declarations(text, format)}
    if "CHARSET" not in declared:
        try:
            return text.encode(charset)
        except UnicodeEncodeError:
            if _XML in CHARSETS.get(format, ()) and all(_has(charset, part) for part in CDATA.findall(text)):
                return text.encode(charset, "xmlcharrefreplace")
    for start, end in sorted(_declarations(text, format), reverse=True):
        text = f"{text[:start]}UTF-8{text[end:]}"
    return text.encode("utf-8")


def _has(charset, text):
    try:
        return bool(text.encode(charset))
    except UnicodeEncodeError:
        return False


def direction_of(language):
    """The direction in which a language is written: "rtl" for Arabic, Hebrew, Persian and Urdu; "ltr" for most."""
    locale = locale_of(language)
    return locale.text_direction if locale else "ltr"


def is_same_language(code, other):
    """Whether two codes are of one language in one script: "de-AT" and "deu" are, "zh-Hans" and "zh-TW" are not."""
    return parts_of(code.strip()[:LONGEST_CODE])[:2] == parts_of(other)[:2]


def language_of(translator, given=None):
    """The code of the language that a translation declares; None if it is unknown.

    Args:
        translator: as for `translate_bytes`. Of many languages, it is the default that counts, in the form of BCP 47.
        given: code of a user, for a translator of one direction, with "-" or "_"; None: as its run or its export says.
    """
    known = tags.direction_of(translator)[1]
    if getattr(translator, "tags", None):
        return known
    code = given or known
    return code.replace("_", "-") if code and LANGUAGE.fullmatch(code) else None
