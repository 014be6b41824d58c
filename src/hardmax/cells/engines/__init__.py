"""The engines that cut cells: line, plane and space in floats with proofs, exact in rationals."""
