"""The stages of the pipeline, one a file, each a pure function from one value to the next."""
