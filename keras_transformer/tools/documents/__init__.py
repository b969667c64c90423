"""Translates documents in their place: HTML, Markdown, XLIFF, gettext, subtitles, Word."""

INSTALL = "pip install 'markdown-it-py>=3,<5'"  # the extra [documents] of pyproject.toml
