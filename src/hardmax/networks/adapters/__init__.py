"""Adapters: one file for each kind of model, all giving the same ``Capture``."""

from hardmax.networks.adapters.captured import Capture, CapturedHead
from hardmax.networks.adapters.capturing import capture
from hardmax.networks.adapters.models import minilm, sceptr, smollm2

__all__ = ["Capture", "CapturedHead", "capture", "minilm", "sceptr", "smollm2"]
