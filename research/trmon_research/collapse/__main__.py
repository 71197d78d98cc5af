"""python -m trmon_research.collapse report | fit: the benchmark of collapse, and the model that the package ships."""

from trmon_research.collapse.command import app

app()
