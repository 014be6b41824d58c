"""Networks built by theorem."""
