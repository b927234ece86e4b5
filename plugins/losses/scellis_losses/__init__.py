"""Built-in blocks of one family; each module is one block, reached through its entry point."""
