"""Tests the name dictionary, which one thread reads while another evicts entries."""

from __future__ import annotations

from sqlalchemy import event

from trmon.store import Store
from trmon.store.database import engines_of
from trmon.store.rows.batches import NameDictionary


def test_names_can_be_read_while_the_writer_evicts_them(store: Store, url: str) -> None:
    wanted = (("kl",), ("reward", "lr"))
    added = store.writer.submit(
        lambda transaction: [NameDictionary().id_of(transaction.connection, one) for one in wanted]
    )
    ids = added.result(30)
    engines, names = engines_of(url), NameDictionary()
    with engines.reader.connect() as connection:
        names.read(connection, ids[:1])
        event.listen(engines.reader, "before_cursor_execute", lambda *_: names.forget())
        assert names.read(connection, ids) == dict(zip(ids, wanted, strict=True))
    engines.dispose()
