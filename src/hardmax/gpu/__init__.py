"""The only folder that imports torch or triton."""
