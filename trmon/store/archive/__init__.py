"""Archives: a project as partitioned parquet files that other tools can query and `trmon import` can read back.

    DIR/manifest.json                              written last: without it, the archive is incomplete
    DIR/table=batches/run=grpo/part-0.parquet      one folder per table and run

The archive has the tables of a run as they are in the database, `report` with its stored payload, so an import loses
nothing. The table `sequences` shows the same payloads with a column per statistic, for queries only. Ids are those of
the database that wrote the archive. Needs pyarrow.
"""
