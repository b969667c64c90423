from serving.answers import Explanation, Score, Translation


def test_texts_are_str_whether_they_came_as_bytes_or_str():
    for text in ("größe", "größe".encode()):
        assert Translation.of({"translation": text, "score": -0.5}) == Translation("größe", -0.5)
        assert Translation.several({"translations": [text, b"\xff"], "scores": [-0.5, -0.75]}) == [
            Translation("größe", -0.5),
            Translation("\ufffd", -0.75),
        ]
        scored = Score.of({"score": -3.0, "pieces": [text, "</s>", ""], "token_scores": [-2.0, -1.0, 0.0]})
        assert scored == Score(-3.0, ["größe", "</s>"], [-2.0, -1.0])


def test_padding_of_source_and_target_is_cut_off_an_alignment():
    row = {
        "source_pieces": ["a", "b", "", "", ""],
        "pieces": ["x", "y", "z", "", "", "", ""],
        "token_scores": [-1.0, -2.0, -3.0, 0.0, 0.0, 0.0, 0.0],
        "alignment": [[1.0, 0.0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.25, 0.75, 0, 0, 0], *[[0.0] * 5] * 4],
    }
    found = Explanation.of(row)
    assert (found.source_pieces, found.pieces) == (["a", "b"], ["x", "y", "z"])
    assert found.token_scores == [-1.0, -2.0, -3.0]
    assert found.alignment == [[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]


def test_a_row_without_padding_is_left_whole_and_one_without_pieces_is_empty():
    assert Score.of({"score": 0.0, "pieces": ["a"], "token_scores": [-1.0]}).pieces == ["a"]
    assert Score.of({"score": 0.0, "pieces": [""], "token_scores": [0.0]}) == Score(0.0, [], [])
