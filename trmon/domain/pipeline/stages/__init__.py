"""The stages of the pipeline, one per file, each a pure function from one typed value to the next."""
