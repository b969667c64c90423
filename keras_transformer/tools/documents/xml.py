"""XML with the place of every element, so that text is replaced in the document itself."""

from dataclasses import dataclass, field
from xml.parsers import expat

from keras_transformer.errors import UserError


@dataclass
class Node:
    """An element, or text.

    Attributes:
        name: str, without its prefix; "" for text.
        prefix: str, of its name, with the colon; "" without one.
        space: str, the URI of its namespace; "" without one.
        attributes: dict.
        start, end: its place in the document, in characters.
        inner_start, inner_end: the place of its content; equal for an empty element.
        text: str, of a text node.
        children: list of `Node`.
    """

    name: str
    attributes: dict = field(default_factory=dict)
    start: int = 0
    end: int = 0
    inner_start: int = 0
    inner_end: int = 0
    text: str = ""
    children: list = field(default_factory=list)
    prefix: str = ""
    space: str = ""

    def find(self, name):
        """The first child of this name; None if there is none."""
        return next((child for child in self.children if child.name == name), None)

    def walk(self):
        """Yields this element and all inside it, in their order."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse(text, path):
    """The root `Node` of a document, which is not an element itself.

    Args:
        text: str.
        path: of the document, for the error.

    Raises:
        UserError: if it is not well-formed, with the line.
    """
    events = _events(text, path)
    root = Node("", end=len(text), inner_end=len(text))
    open_ones, scopes = [root], [{}]
    for (kind, payload, start), (*_, end) in zip(events, [*events[1:], ("end", None, len(text))], strict=True):
        if kind == "start":
            prefix, colon, name = payload[0].rpartition(":")
            scopes.append(scopes[-1] | _declared(payload[1]))
            node = Node(name, payload[1], start, end, end, end, prefix=prefix + colon, space=scopes[-1].get(prefix, ""))
            open_ones[-1].children.append(node)
            open_ones.append(node)
        elif kind == "end":
            node = open_ones.pop()
            scopes.pop()
            if start > node.start:
                node.inner_end, node.end = start, end
            else:  # <x/>, whose end has the place of its beginning
                node.inner_start = node.inner_end = node.end = end
        elif kind == "text":
            open_ones[-1].children.append(Node("", start=start, end=end, text=payload))
    return root


def _declared(attributes):
    """The namespaces that the attributes of an element declare: dict of prefix -> URI."""
    return {
        name.partition(":")[2]: uri for name, uri in attributes.items() if name == "xmlns" or name.startswith("xmlns:")
    }


def _events(text, path):
    data, found = text.encode("utf-8"), []
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = False

    def noting(kind):
        return lambda *payload: found.append((kind, payload, parser.CurrentByteIndex))

    parser.StartElementHandler, parser.EndElementHandler = noting("start"), noting("end")
    parser.CharacterDataHandler = lambda data: found.append(("text", data, parser.CurrentByteIndex))
    parser.CommentHandler = parser.ProcessingInstructionHandler = parser.XmlDeclHandler = noting("other")
    parser.StartCdataSectionHandler = parser.EndCdataSectionHandler = noting("other")
    parser.DefaultHandler = noting("other")
    parser.StartDoctypeDeclHandler = parser.EndDoctypeDeclHandler = noting("other")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise UserError(
            f"{path} is not well-formed XML: line {error.lineno}, column {error.offset + 1}: {reason}"
        ) from None
    events, last_byte, last = [], 0, 0
    for kind, payload, byte in found:
        last += len(data[last_byte:byte].decode("utf-8"))
        last_byte = byte
        events.append((kind, payload, last))
    return events
