"""The browser host of a step program: static ES modules, shipped as package data.

``static/host.js`` replays a step program on WebGPU, ``static/trainer.js`` is the training loop, ``static/worker.js``
runs it off the page's thread, ``static/page.js`` and ``index.html`` are the page. Nothing here is imported by the
core; ``scellis web`` copies the files.
"""
