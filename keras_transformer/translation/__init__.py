"""From text to text, as TensorFlow ops: options, segments, signatures; and `translator`, their Python face."""
