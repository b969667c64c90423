"""Makes the fixtures of the importers, by the engines themselves: run by hand, in an environment of their own.

    python3 -m venv hf && hf/bin/pip install torch==2.13.0 "transformers==4.*" sentencepiece safetensors
    hf/bin/python tests/tools/importing/make_fixtures.py

Each fixture is a tar.xz of the directory that the engine saves, and of expected.json: what the engine itself finds. The
corpus is made here: numbers in words. So the models learn to translate in a minute, and no output repeats one token.
"""

import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
import transformers
from toy_corpus import GERMAN_SENTENCES, SENTENCES, pack, pairs, pieces_of, train_pieces
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
SIZES |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "dropout": 0.0}
SIZES |= {"attention_dropout": 0.0, "activation_dropout": 0.0, "max_position_embeddings": 64}


def learn(model, tokenizer, corpus, steps=500, languages=()):
    """Trains a model on pairs; with `languages`, every other update is of the other direction."""
    torch.manual_seed(5)
    for parameter in model.parameters():  # biases and gains of 0 and 1 would hide a wrong place
        if parameter.requires_grad and parameter.dim() == 1:
            parameter.data += 0.05 * torch.randn_like(parameter)
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    draw = random.Random(7)
    model.train()
    for step in range(steps):
        sources, targets = zip(*draw.sample(corpus, 32), strict=True)
        if languages:
            turn = 1 - 2 * (step % 2)
            sources, targets = (sources, targets)[::turn]
            tokenizer.src_lang, tokenizer.tgt_lang = languages[::turn]
        batch = tokenizer(list(sources), text_target=list(targets), return_tensors="pt", padding=True)
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(), optimizer.zero_grad(), schedule.step()
        if step % 100 == 0:
            print(step, loss.item(), file=sys.stderr)


@torch.no_grad()
def expected(model, tokenizer, sentences, **settings):
    """What the engine finds: a list of dicts."""
    model.eval()
    settings |= {"do_sample": False, "max_length": 60, "length_penalty": 0.0}
    found = []
    for sentence in sentences:
        row = {"source": sentence}
        batch = tokenizer([sentence], return_tensors="pt")
        row["source_ids"] = batch["input_ids"][0].tolist()
        for name, width in (("greedy", 1), ("beam", 4)):
            ids = model.generate(**batch, num_beams=width, **settings)
            scores = model(**batch, decoder_input_ids=ids[:, :-1]).logits.log_softmax(-1)
            log_probs = scores.gather(2, ids[:, 1:, None])[0, :, 0]
            forced = 1 if settings.get("forced_bos_token_id") is not None else 0
            row[name] = {
                "text": tokenizer.batch_decode(ids, skip_special_tokens=True)[0],
                "ids": ids[0, 1 + forced :].tolist(),
                "log_prob": float(log_probs[forced:].sum()),
            }
        found.append(row)
    return found


def keep(name, model, tokenizer, directions):
    """Saves a model in half precision, and writes the fixture NAME.tar.xz of the model that was saved.

    `directions` is a list of (source language, target language, sentences, arguments of `generate`).
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        model.half().save_pretrained(path)
        tokenizer.save_pretrained(path)
        model = type(model).from_pretrained(path, dtype=torch.float32)
        found = []
        for source, target, sentences, settings in directions:
            tokenizer.src_lang, tokenizer.tgt_lang = source, target
            rows = expected(model, tokenizer, sentences, **settings)
            found.append({"source_lang": source, "target_lang": target, "rows": rows})
            print(*(row["greedy"]["text"] for row in rows), sep="\n")
        pack(path, found)


def marian(name):
    """A `MarianMTModel` as OPUS-MT's: post-norm, swish, one matrix, two SentencePiece models, a bias of the logits."""
    torch.set_num_threads(1)
    transformers.set_seed(3)
    corpus = pairs(600, seed=1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        for side, sentences in zip(("source", "target"), zip(*corpus, strict=True), strict=True):
            train_pieces(path / f"{side}.spm", sentences, 90)
        both = dict.fromkeys(pieces_of(path / "source.spm")[3:] + pieces_of(path / "target.spm")[3:])
        print(*both, file=sys.stderr)
        del both["▁zwölf"], both["▁three"]  # a piece of a model that has no id is unknown
        vocabulary = ["</s>", "<unk>", *both, "<pad>"]
        (path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
        files = [str(path / file) for file in ("source.spm", "target.spm", "vocab.json")]
        tokenizer = transformers.MarianTokenizer(*files, source_lang="en", target_lang="de")
        last = len(vocabulary) - 1
        ids = {"pad_token_id": last, "decoder_start_token_id": last, "bad_words_ids": [[last]]}
        how = {"activation_function": "swish", "scale_embedding": True, "init_std": 0.2, **SIZES}
        model = transformers.MarianMTModel(transformers.MarianConfig(vocab_size=len(vocabulary), **ids, **how))
        model.final_logits_bias = 0.3 * torch.randn(1, len(vocabulary))
        model.final_logits_bias[0, -1] = 0
        learn(model, tokenizer, corpus)
        keep(name, model, tokenizer, [("en", "de", SENTENCES, {"bad_words_ids": [[last]]})])


def multilingual(name, model_class, config, make_tokenizer, codes, setting, tag_of=str):
    """A model of fairseq's kind: one BPE model of pieces, and a tag for each language, which a setting names."""
    torch.set_num_threads(1)
    transformers.set_seed(3)
    corpus = pairs(600, seed=1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "sentencepiece.bpe.model")
        train_pieces(path, [text for pair in corpus for text in pair], 120, model_type="bpe")
        tokenizer = make_tokenizer(str(path))
        size = 9 + max(tokenizer.convert_tokens_to_ids(list(tokenizer.get_vocab())))
        model = model_class(config(vocab_size=size, init_std=0.2, **SIZES))
        learn(model, tokenizer, corpus, 700, codes)
        directions = []
        for languages, sentences in ((codes, SENTENCES), (codes[::-1], GERMAN_SENTENCES)):
            start = tokenizer.convert_tokens_to_ids(tag_of(languages[1]))
            directions.append((*languages, sentences, {setting: start}))
        keep(name, model, tokenizer, directions)


def m2m100_tokenizer(path):
    """A tokenizer whose ids of pieces are those of vocab.json."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pieces_of(path)[3:])]
    vocabulary.remove("▁weighs")  # a piece of the model that has no id is unknown
    file = Path(path).with_name("vocab.json")
    file.write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    codes = FAIRSEQ_LANGUAGE_CODES["m2m100"]
    tags = {"src_lang": "en", "tgt_lang": "de", "additional_special_tokens": [f"__{code}__" for code in codes]}
    return transformers.M2M100Tokenizer(str(file), path, **tags)


def torch_file(name):
    """A file of torch.save: an array, its transpose in the same storage, half precision, a parameter, a part."""
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    content = {"x": x, "turned": x.T, "half": x.half(), "parameter": torch.nn.Parameter(x), "part": x[1:, 1:]}
    torch.save(content, Path(__file__).with_name(f"{name}.bin"))


def main():
    """Makes the fixtures that the arguments name; all of them by default."""
    m2m100 = transformers.M2M100ForConditionalGeneration, partial(transformers.M2M100Config, activation_function="relu")
    mbart = transformers.MBartForConditionalGeneration, partial(transformers.MBartConfig, scale_embedding=True)
    first, start = "forced_bos_token_id", "decoder_start_token_id"
    many = {
        "hf_m2m100": (*m2m100, m2m100_tokenizer, ("en", "de"), first, "__{}__".format),
        "hf_nllb": (*m2m100, transformers.NllbTokenizer, ("eng_Latn", "deu_Latn"), first),
        "hf_mbart": (*mbart, transformers.MBartTokenizer, ("en_XX", "de_DE"), start),
    }
    for name in sys.argv[1:] or ["torch_file", "hf_marian", *many]:
        if name in many:
            multilingual(name, *many[name])
        else:
            {"torch_file": torch_file, "hf_marian": marian}[name](name)


if __name__ == "__main__":
    main()
