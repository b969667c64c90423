"""Back-translation: a model of the reverse direction writes the source side of text that has none."""
