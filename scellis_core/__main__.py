"""``python -m scellis_core`` is the ``scellis`` command."""

from scellis_core.cli import main

if __name__ == "__main__":
    main()
