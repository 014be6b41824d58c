"""``hm.models``: trained models that come as packages, and the values that capturing them gives.

Each loader reads the files of an installed package, never the network, and never unpickles anything; each
model has ``capture``, which gives one ``Capture`` for each text or sequence.
"""

from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.capture.sceptr_models import SCEPTR_VARIANTS, ReceptorModel, sceptr
from hardmax.heads.capture.smollm2_model import CausalModel, smollm2
from hardmax.heads.capture.text_models import TextModel, minilm

__all__ = [
    "SCEPTR_VARIANTS",
    "Capture",
    "CapturedHead",
    "CausalModel",
    "ReceptorModel",
    "TextModel",
    "minilm",
    "sceptr",
    "smollm2",
]
