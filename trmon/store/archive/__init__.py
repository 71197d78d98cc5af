"""A project as partitioned parquet, and back: what people query with their own tools, and nothing is lost.

    DIR/manifest.json                              written last: an archive without it is not whole
    DIR/table=batches/run=grpo/part-0.parquet      a folder for each table and run

Every table of a run lies here as in the database, `report` with its stored payload, so that it can be taken in again;
`sequences` shows the same payloads with a column for each statistic, and is only read by people. The ids are those of
the database that wrote it. Needs pyarrow.
"""
