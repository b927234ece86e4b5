"""The host loop: sessions, steps, validation, checkpoints, resume, and the Python API over them."""
