import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from keras_transformer.errors import UserError
from keras_transformer.protection import Protection
from keras_transformer.tools.documents import apart
from keras_transformer.tools.documents.apart import run_apart, translate_file_apart, translate_pages_apart
from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import UPPER, Backwards


def own_process(translator):
    return os.getpid(), translator.translate(["one"]), translator.protection


def spin(translator):
    while True:
        pass


def fill(translator):
    return len(bytearray(2 * apart.MOST_BYTES))


def stumble(translator):
    return [][0]


def test_a_document_is_translated_in_a_process_of_its_own_as_here_and_asks_the_translator_here():
    process, texts, protection = run_apart(own_process, 5, UPPER)
    assert process != os.getpid() and texts == ["ONE"] and protection is None
    translator, page = Backwards(Protection({"apple": "Apfel"})), "<p>the <b>apple</b> tree</p>"
    expected = translate_bytes(translator, page.encode(), "html")
    assert b"<b>Apfel</b>" in expected and translate_file_apart(translator, page.encode(), "html") == expected
    assert translate_pages_apart(translator, [page, ""]) == [expected.decode(), ""]
    assert multiprocessing.active_children() == []


def test_what_goes_beyond_the_limits_is_refused_and_an_error_of_the_translator_ends_the_process():
    for function, message in ((spin, apart.TOO_MUCH), (fill, apart.TOO_MUCH), (stumble, apart.DAMAGED)):
        with pytest.raises(UserError) as caught:
            run_apart(function, 1, UPPER)
        assert str(caught.value) == message
    with pytest.raises(ConnectionAbortedError, match="the server"):
        run_apart(own_process, 5, SimpleNamespace(translate=Mock(side_effect=ConnectionAbortedError("the server"))))
    assert multiprocessing.active_children() == []


def test_a_document_that_needs_no_time_is_answered_on_a_machine_that_is_late(monkeypatch):
    find = apart.psutil.Process
    monkeypatch.setattr(apart.psutil, "Process", lambda pid: time.sleep(0.5) or find(pid))
    assert translate_file_apart(UPPER, b"", "html") == b""


def test_hostile_documents_do_not_hold_up_others_and_end_when_nobody_waits_for_them(monkeypatch):
    monkeypatch.setattr(apart.SLOW, "most", 9)  # eight work at a time, one waits
    gone, places = threading.Event(), apart.SLOW.most + 4
    with ThreadPoolExecutor(places) as pool:
        hostile = [pool.submit(run_apart, spin, 60, UPPER, gone=gone) for _ in range(places)]
        try:
            time.sleep(1)
            # a page, whose process imports nothing: to import this module would take the time of the quick lane
            assert translate_pages_apart(UPPER, ["one"]) == ["ONE"]
        finally:
            gone.set()
        start = time.monotonic()
        assert {type(each.exception()) for each in hostile} <= {apart.Gone, apart.Busy}
        assert time.monotonic() - start < 1 + len(hostile) / 10
    assert multiprocessing.active_children() == []


def hold(translator, size):
    held = bytearray(size)
    translator.translate([held.decode()[:1]])
    return len(held)


def test_documents_have_a_limit_of_memory_together(monkeypatch):
    monkeypatch.setattr(apart, "MOST_BYTES_TOGETHER", 2**26)
    assert run_apart(hold, 5, UPPER, 2**24) == 2**24
    slow = SimpleNamespace(translate=lambda texts: time.sleep(1) or texts)
    pytest.raises(apart.Busy, run_apart, hold, 5, slow, 2**27)
