"""From a trained run to EXPORT_DIR/VERSION: two formats, the proof that they translate as it does, the manifest."""
