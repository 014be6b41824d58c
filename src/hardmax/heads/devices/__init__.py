"""Heads on an accelerator: torch in binary32, with proved bounds; what they leave open goes back to the processor."""
