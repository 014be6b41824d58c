"""``hm.models``: trained models that come as packages, and the values that capturing them gives."""

from hardmax.networks.adapters.captured import Capture, CapturedHead

__all__ = ["Capture", "CapturedHead"]
