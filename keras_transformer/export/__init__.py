"""From a trained run to EXPORT_DIR/VERSION: a SavedModel, the proof that it translates as the run does, and the
manifest."""
