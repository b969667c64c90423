from pathlib import Path


def test_the_file_is_a_copy_of_the_one_of_the_package():
    copy, original = (Path(__file__).parents[2] / part / "protection.py" for part in ("serving", "keras_transformer"))
    assert copy.read_bytes() == original.read_bytes(), f"cp {original} {copy}"
