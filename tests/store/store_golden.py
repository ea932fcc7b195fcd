"""The store directories that the real broker wrote, by name; opens copies of them."""

from __future__ import annotations

from pathlib import Path

from fake_clock import FakeClock
from store_support import inline

from triomq.protocol import java_properties
from triomq.protocol.settings import bind
from triomq.store.config import StoreSettings
from triomq.store.message_store import DefaultMessageStore

SETS = ["1a_clean", "1b_killed", "1d_sql92_ext", "1e_retention"]
DAMAGED = [
    "c01_tail_zeroed",
    "c02_file_cut_short",
    "c03_flip_body_last_file",
    "c04_flip_body_first_file",
    "c05_flip_magic_second_last_file",
    "c06_no_consumequeue",
    "c07_no_consumequeue_of_one_queue",
    "c08_no_index",
    "c09_no_checkpoint",
    "c10_last_commitlog_file_missing",
    "c11_first_commitlog_file_missing",
    "c12_middle_commitlog_file_missing",
    "c13_all_commitlog_files_missing",
    "c14_next_file_empty",
    "c15_next_file_zeros",
    "c16_cq_ahead",
    "c17_cq_short",
    "c18_cq_all_short",
    "c19_topics_json_empty",
    "c20_topics_json_torn",
    "c21_offsets_torn_no_bak",
    "c22_flip_property_last_file",
    "c23_flip_totalsize_last_file",
    "k00_killed",
    "k01_tail_zeroed",
    "k02_flip_body_last_file",
    "k03_flip_body_third_last_file",
    "k04_no_consumequeue",
    "k05_no_consumequeue_of_one_queue",
    "k06_no_index",
    "k07_no_checkpoint",
    "k08_no_consumequeue_no_checkpoint",
    "k09_cq_all_short",
    "k10_cut_file",
    "k11_abort_removed",
]


def settings_of(root: Path) -> StoreSettings:
    conf = java_properties.parse((root / "broker.conf").read_text())
    settings, _ = bind(StoreSettings, {**conf, "storePathRootDir": str(root)}, source="broker.conf")
    return settings


async def open_golden(root: Path) -> DefaultMessageStore:
    store = DefaultMessageStore(settings_of(root), now_ms=FakeClock(1_795_240_000_000), offload=inline)
    await store.load()
    return store
