"""What ``hardmax report`` gathers: one file for each section of the page, each giving a ``Section``."""
