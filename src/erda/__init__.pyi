from erda.benchmark.records import read_record as read_record
from erda.benchmark.records import read_records as read_records
from erda.benchmark.report.report import write_report as write_report
from erda.benchmark.run.many import run_all as run_all
from erda.corpus.augment import open_augmenter as open_augmenter
from erda.corpus.similarity import load_similarity as load_similarity
from erda.corpus.store import CorpusStore as CorpusStore
from erda.data.catalogue import DATASETS as DATASETS
from erda.data.catalogue import load_dataset as load_dataset
from erda.data.catalogue import open_stream as open_stream
from erda.data.own import read_examples as read_examples
from erda.encoders import ENCODERS as ENCODERS
from erda.encoders import build_encoder as build_encoder
from erda.errors import ErdaError as ErdaError
from erda.methods import METHODS as METHODS
from erda.methods.base import Method as Method
from erda.methods.erda import Erda as Erda
from erda.settings.load import run_settings as run_settings
from erda.types import Entity as Entity
from erda.types import Example as Example
from erda.types import Prediction as Prediction
from erda.types import Predictions as Predictions
from erda.types import Relation as Relation
from erda.types import Span as Span
from erda.types import Task as Task
from erda.types import TestSet as TestSet

__version__: str
