"""Classes that a linear layer with argmax can and cannot answer, each with its proof."""
