"""From networks made of layers to the oracles' plain descriptions."""

import hardmax as hm


def described(layers):
    """The layers in the oracles' words."""
    result = []
    for layer in layers:
        if isinstance(layer, hm.Affine):
            result.append(("affine", layer.weight.tolist(), listed(layer.bias)))
        elif isinstance(layer, hm.ReLU):
            result.append(("relu",))
        elif isinstance(layer, hm.Attention):
            heads = [tuple(map(listed, (h.keys, h.values, h.query, h.query_bias))) for h in layer.heads]
            result.append(("attention", heads, listed(layer.output)))
        else:
            assert isinstance(layer, hm.Residual)
            result.append(("residual", described(layer.layers)))
    return result


def listed(array):
    """An array as nested lists; None stays None."""
    return None if array is None else array.tolist()
