"""Long and distributed work: chunks, resume, sweeps."""
