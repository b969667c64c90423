"""Makes a run of a model that another program has trained."""

from keras_transformer.cli import console
from keras_transformer.cli.parser import Parser
from keras_transformer.process import find_tool

DESCRIPTION = """Make a run of a model that another program has trained. The run can be trained further.

  python -m keras_transformer import opus-mt-en-de --model_dir runs/opus
      a MarianMTModel of Hugging Face: a directory with config.json, weights, source.spm, target.spm and vocab.json
      or Marian's own files: model.npz, decoder.yml, vocabularies (.spm, or .yml beside source.spm and target.spm)
  python -m keras_transformer import m2m100_418M --source_lang en --target_lang de --model_dir runs/m2m
      one pair of languages of M2M-100, NLLB-200 or mBART. A wrong code lists the codes of the model
  python -m keras_transformer import nllb-200-distilled-600M --languages en,de,fr --model_dir runs/nllb
      several languages of M2M-100, NLLB-200 or mBART-50, in all directions; of OPUS-MT, several target languages
  python -m keras_transformer import onmt-en-de --source_lang en --target_lang de --model_dir runs/onmt
      a run directory of OpenNMT-tf 2, or its avg, with data.yml, vocabularies and SentencePiece models copied into it
  python -m keras_transformer import translate-en_de-1_9.argosmodel --model_dir runs/argos
      a package of Argos Translate, or a directory of CTranslate2 with its SentencePiece model beside model.bin

The files of the model are only read. No code in them is run. docs/import.md lists the formats."""


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    parser.add_argument("path", metavar="DIR", help="directory of the model, with all of its files, or an .argosmodel")
    parser.add_argument("--model_dir", required=True, help="directory of the run, which is made")
    parser.add_argument(
        "--source_lang", help="code of the language to translate from; needed for a model of several languages"
    )
    parser.add_argument(
        "--target_lang", help="code of the language to translate to; needed for a model of several languages"
    )
    parser.add_argument(
        "--languages",
        metavar="CODES",
        help="several languages of the model, such as en,de,fr, or all; the first two are the default direction, "
        "unless `source_lang` and `target_lang` name it. With all, they are needed. Of OPUS-MT, the source comes first",
    )
    parser.add_argument(
        "--trim_vocabulary",
        nargs="+",
        metavar="CORPUS",
        help="keep only the pieces that CORPUS needs, single characters and bytes: text files in the languages of the "
        "run, or directories with files train.*. The model becomes smaller and faster",
    )
    return parser


def main(arguments):
    """Imports, and says how to go on."""
    import_model = find_tool("importing", "`import`").import_model
    run = import_model(
        arguments.path,
        arguments.model_dir,
        arguments.source_lang,
        arguments.target_lang,
        trim_vocabulary=arguments.trim_vocabulary,
        languages=arguments.languages,
    )
    print(
        f"imported    {run.path}\n"
        f"translate:  {console.command('translate', '--model_dir', run.path)}\n"
        f"export:     {console.command('export', '--model_dir', run.path, '--export_dir', f'exports/{run.path.name}')}"
    )


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        arguments = parser.parse_args()
        console.import_tensorflow()
        main(arguments)
