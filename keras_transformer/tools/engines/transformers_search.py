"""Greedy search by transformers, in a process of its own: PyTorch's compiler and TensorFlow cannot share one.

It reads requests from its standard input, one JSON object a line, and answers each with one line of JSON.
"""

import json
import sys

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging


class Search:
    """A directory that transformers has loaded.

    Args:
        directory: path.

    Raises:
        ValueError: if the class has weights that the files lack, or the files weights that the class lacks.
    """

    def __init__(self, directory):
        logging.disable_progress_bar()
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model, loaded = AutoModelForSeq2SeqLM.from_pretrained(
            directory, output_loading_info=True, dtype=torch.float32
        )
        wrong = {name: sorted(map(str, keys)) for name, keys in loaded.items() if keys}
        if wrong:
            raise ValueError(f"transformers loads other weights than were written: {wrong}")

    def ids_of_texts(self, texts):
        """The ids of texts, with all that the tokenizer puts around them: list of lists of int."""
        return [self.tokenizer(text)["input_ids"] for text in texts]

    def ids_of_pieces(self, pieces):
        """The ids of pieces of sources: list of lists of int."""
        return [self.tokenizer.convert_tokens_to_ids(each) for each in pieces]

    @torch.no_grad()
    def search(self, ids, most, prefix):
        """The best translations of sources of equal length.

        Args:
            ids: list of lists of int.
            most: int, most tokens of a translation.
            prefix: int, how many of its first tokens are given, and so do not count.

        Returns:
            {"pieces": list of lists of str, "scores": list of float, "texts": list of str}.
        """
        ids = torch.tensor(ids)
        found = self.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            num_beams=1,
            do_sample=False,
            max_length=most + 1,
        )
        labels = found[:, 1:]
        is_end = labels == self.model.generation_config.eos_token_id
        is_real = is_end.cumsum(1) - is_end.long() == 0  # up to eos
        logits = self.model(input_ids=ids, decoder_input_ids=found[:, :-1]).logits
        logits[..., self.model.generation_config.suppress_tokens or []] = -torch.inf
        scores = logits.log_softmax(-1).gather(2, labels[..., None])[..., 0].where(is_real, 0)  # padding has -inf
        rows = [row[kept][prefix:].tolist() for row, kept in zip(labels, is_real & ~is_end, strict=True)]
        return {
            "pieces": [self.tokenizer.convert_ids_to_tokens(row) for row in rows],
            "scores": scores[:, prefix:].sum(1).tolist(),
            "texts": [self.tokenizer.decode(row, skip_special_tokens=True) for row in rows],
        }


def answer_requests(search, lines, write):
    """Answers {"METHOD": {its arguments}} until there are no more lines."""
    for line in lines:
        ((method, arguments),) = json.loads(line).items()
        write(json.dumps(getattr(search, method)(**arguments)) + "\n")


def main():
    """Loads the directory and answers."""
    search = Search(sys.argv[1])
    print(json.dumps("ready"), flush=True)
    answer_requests(search, sys.stdin, lambda text: print(text, end="", flush=True))


if __name__ == "__main__":
    main()
