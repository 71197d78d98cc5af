"""Numbers that JSON lacks, and answers of a newer service."""

from __future__ import annotations

import pytest

from trmon_client.api import ApiNumber
from trmon_client.api.answers import decode_answer, encode_answer
from trmon_client.api.policies import ShareInfo


def test_numbers_that_json_lacks_come_back() -> None:
    body = b'{"n_sequences":0,"mask_rate":null}'
    share = decode_answer(body, ShareInfo)
    assert share.mask_rate != share.mask_rate
    assert encode_answer(share) == body
    endless = decode_answer(b'{"n_sequences":1,"mask_rate":"-inf"}', ShareInfo)
    assert (endless.mask_rate, endless.mask_rate + 1) == (-float("inf"), -float("inf"))
    assert encode_answer(endless) == b'{"n_sequences":1,"mask_rate":"-inf"}'


def test_a_newer_service_may_answer_more_and_not_less() -> None:
    newer = b'{"n_sequences":2,"mask_rate":0.5,"median_length":7}'
    assert decode_answer(newer, ShareInfo) == ShareInfo(n_sequences=2, mask_rate=ApiNumber(0.5))
    with pytest.raises(ValueError, match="mask_rate"):
        decode_answer(b'{"n_sequences":2}', ShareInfo)


def test_half_a_surrogate_pair_is_written_as_a_question_mark() -> None:
    share = ShareInfo(n_sequences=2, mask_rate=ApiNumber("nan"))
    assert encode_answer({"log\udcff.jsonl": share, "of": "kl\ud800"}) == (
        b'{"log?.jsonl": {"n_sequences": 2, "mask_rate": null}, "of": "kl?"}'
    )
