"""Adapters: one file for each kind of model, all giving the same ``Capture``."""

from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.capture.capturing import capture
from hardmax.heads.capture.models import minilm, sceptr, smollm2

__all__ = ["Capture", "CapturedHead", "capture", "minilm", "sceptr", "smollm2"]
