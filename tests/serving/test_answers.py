from serving.answers import Score, Translation


def test_texts_are_str_whether_they_came_as_bytes_or_str():
    for text in ("größe", "größe".encode()):
        assert Translation.of({"translation": text, "score": -0.5}) == Translation("größe", -0.5)
        assert Translation.several({"translations": [text, b"\xff"], "scores": [-0.5, -0.75]}) == [
            Translation("größe", -0.5),
            Translation("\ufffd", -0.75),
        ]
        scored = Score.of({"score": -3.0, "pieces": [text, "</s>", ""], "token_scores": [-2.0, -1.0, 0.0]})
        assert scored == Score(-3.0, ["größe", "</s>"], [-2.0, -1.0])


def test_a_row_without_padding_is_left_whole_and_one_without_pieces_is_empty():
    assert Score.of({"score": 0.0, "pieces": ["a"], "token_scores": [-1.0]}).pieces == ["a"]
    assert Score.of({"score": 0.0, "pieces": [""], "token_scores": [0.0]}) == Score(0.0, [], [])
