"""Networks in and out of files: formats, limits, arrays, ONNX, PyTorch, GGUF."""
