"""ONNX in and out: models, nodes, constants, attention and window patterns."""
