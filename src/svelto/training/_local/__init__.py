"""Local SVMs: exact neighbours, the cover, SVMs of neighbourhoods and their answers."""
