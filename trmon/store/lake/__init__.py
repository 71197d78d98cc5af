"""The lake: attempts that have ended, moved from the database to Delta tables that keep a company's history.

    URL/reports/project=math/month=2026-11/part-....parquet    one Delta table a kind of row, with its log in _delta_log

The mover works in numbered lake batches. Each table gets the rows of a batch with one commit that carries the number,
so that a repeated commit is recognised; the database marks the attempts as moved once every table holds its rows.
Needs the extra `lake`, which only the modules that open tables import.
"""
