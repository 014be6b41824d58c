"""Long work that survives: plans of chunks, parts on disk, processes and clusters."""
