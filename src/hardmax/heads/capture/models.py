"""``hm.models``: trained models that come as packages, and the values that capturing them gives.

Each loader reads the files of an installed package, never the network, and never unpickles anything; each
model has ``capture``, which gives one ``Capture`` for each text or sequence.
"""

from hardmax.heads.capture.captured import Capture as Capture
from hardmax.heads.capture.captured import CapturedHead as CapturedHead
from hardmax.heads.capture.sceptr_models import SCEPTR_VARIANTS as SCEPTR_VARIANTS
from hardmax.heads.capture.sceptr_models import ReceptorModel as ReceptorModel
from hardmax.heads.capture.sceptr_models import sceptr as sceptr
from hardmax.heads.capture.smollm2_model import CausalModel as CausalModel
from hardmax.heads.capture.smollm2_model import smollm2 as smollm2
from hardmax.heads.capture.text_models import TextModel as TextModel
from hardmax.heads.capture.text_models import minilm as minilm
from hardmax.views import own_names


def __dir__() -> list[str]:
    return own_names(globals())
