"""Power diagrams of heads: keys that own a cell, keys that queries can reach, shares and values."""
