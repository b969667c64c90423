"""Preparing a corpus: mending its text, and dropping the pairs that would teach a model nothing or something wrong."""
