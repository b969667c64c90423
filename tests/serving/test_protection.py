from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_file_is_a_copy_of_the_one_of_the_package():
    copy, original = (ROOT / part / "protection.py" for part in ("serving", "keras_transformer"))
    assert copy.read_bytes() == original.read_bytes(), f"cp {original} {copy}"
