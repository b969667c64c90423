"""From a trained run to EXPORT_DIR/VERSION: three formats, the proof that each translates as the run does, the
manifest."""
