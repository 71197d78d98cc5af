"""python -m benchmarks.collapse report | fit: the benchmark of collapse, and the model that the package ships."""

from benchmarks.collapse.command import app

app()
