"""Prepares a corpus: mends its text, and drops the pairs that would teach nothing or something wrong."""

INSTALL = "pip install py3langid"  # the extra [clean] of pyproject.toml
