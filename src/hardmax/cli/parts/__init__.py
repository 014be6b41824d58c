"""What commands share: sources, domains, output, progress, messages."""
