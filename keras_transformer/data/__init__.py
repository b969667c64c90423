"""Corpora of sentence pairs, and the pipeline that turns them into batches."""
