"""What the tests of all reports share."""

import json
import re
import shutil

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
EVIL = "</script><b>&amp;\u2028"
PHONE = {"width": 360, "height": 640}


def data_of(page):
    """The data of a report, the text of which is no markup, and which loads nothing from elsewhere."""
    assert page.count("</script>") == 2 and EVIL not in page and "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href|url)\s*[=(]""", page)
    assert {*re.findall(r"https?://[\w./]+", page)} <= {"http://www.w3.org/2000/svg"}
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)
