from erda.app.extractor import Extractor as Extractor
from erda.app.state import Judgement as Judgement
from erda.app.state import Lesson as Lesson
from erda.app.state import VersionInfo as VersionInfo
from erda.app.version import Version as Version
from erda.data.catalogue import DATASETS as DATASETS
from erda.data.catalogue import load_dataset as load_dataset
from erda.data.catalogue import open_stream as open_stream
from erda.data.own_data import read_examples as read_examples
from erda.encoders import ENCODERS as ENCODERS
from erda.encoders import build_encoder as build_encoder
from erda.errors import ErdaError as ErdaError
from erda.methods import METHODS as METHODS
from erda.methods.base import Method as Method
from erda.methods.erda import Erda as Erda
from erda.methods.posterior import Posterior as Posterior
from erda.serve.client import Client as Client
from erda.types import Entity as Entity
from erda.types import Example as Example
from erda.types import Prediction as Prediction
from erda.types import Predictions as Predictions
from erda.types import Relation as Relation
from erda.types import Span as Span
from erda.types import Task as Task
from erda.types import TestSet as TestSet

PUBLIC: dict[str, tuple[str, ...]]
__version__: str
