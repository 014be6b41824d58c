"""Networks: a small graph of operations, hard and soft evaluation, files, slice propagation."""
