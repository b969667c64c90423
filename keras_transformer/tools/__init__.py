"""The tools: folders on top of the core, each of which can be deleted.

The core imports none of them, and a program of `keras_transformer.cli` imports a tool when a user asks for it.
"""

import json
from importlib import resources


def page_of(package, data):
    """The page of a tool: `report.html` of its package, with data in the place of `{{DATA}}`.

    Args:
        package: name of the package.
        data: dict that JSON can hold. None of its texts can end the HTML element around it.

    Returns:
        str.
    """
    template = resources.files(package).joinpath("report.html").read_text(encoding="utf-8")
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return template.replace("{{DATA}}", written.replace("<", "\\u003c"))
