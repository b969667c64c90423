"""Documents with markup: HTML, Markdown, XLIFF, gettext, subtitles and Word files, translated in their place."""
