"""For type checkers and editors: the names of `__init__.py`, which imports each of them when it is first used."""

from keras_transformer import layers as layers
from keras_transformer import process as process
from keras_transformer import training as training
from keras_transformer.config import Config as Config
from keras_transformer.config import preset as preset
from keras_transformer.data.corpora import open_corpus as open_corpus
from keras_transformer.errors import UserError as UserError
from keras_transformer.evaluation import evaluate as evaluate
from keras_transformer.evaluation import measure as measure
from keras_transformer.models.recurrent import RecurrentNetwork as RecurrentNetwork
from keras_transformer.models.sequence_to_sequence import SequenceToSequence as SequenceToSequence
from keras_transformer.models.transformer import Transformer as Transformer
from keras_transformer.runs import Run as Run
from keras_transformer.runs import load as load
from keras_transformer.runs import train as train
from keras_transformer.tokenizer import Tokenizer as Tokenizer
from keras_transformer.tools import analysis as analysis
from keras_transformer.tools.comparison.prediction import perplexity as perplexity
from keras_transformer.tools.comparison.significance import compare as compare
from keras_transformer.tools.documents.files import translate_document as translate_document
from keras_transformer.tools.ensemble import Ensemble as Ensemble
from keras_transformer.tools.importing import import_model as import_model
from keras_transformer.tools.reranking import minimum_bayes_risk as minimum_bayes_risk
from keras_transformer.tools.reranking import rerank as rerank
from keras_transformer.tools.saved_models import SavedModelTranslator as SavedModelTranslator
from keras_transformer.translation.translator import Translator as Translator

__version__: str
