"""Where the SavedModel of an export is; without TensorFlow, so that a program knows it at once."""

from pathlib import Path

from keras_transformer.errors import UserError


def find_saved_model(path):
    """The directory of a SavedModel.

    Args:
        path: EXPORT_DIR/VERSION, or EXPORT_DIR for its latest version.

    Returns:
        pathlib.Path.

    Raises:
        UserError: if there is no SavedModel.
    """
    path = Path(path)
    versions = [p for p in path.glob("[0-9]*") if p.name.isdigit()] if path.is_dir() else []
    if versions:
        path = max(versions, key=lambda p: int(p.name))
    if not (path / "saved_model.pb").exists():
        raise UserError(f"no SavedModel at {path}: `export.py --format saved_model` writes one")
    return path
