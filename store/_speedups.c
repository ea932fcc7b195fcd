/* The functions of store/ that every message passes, again in C: index entries, consume queue entries, reading a record
   back from the log, taking what a filter matches, delivering what is due, and the entries of a group's ledger. Each does
   exactly what the Python function of the same name plus "_reference" does, in index_file.py, consume_queue.py,
   scanned_record.py, delivering.py and dledger/ledger/runs.py (see protocol/speedups.py); take_records is a fast path.
   tests/store/test_store_speedups.py, test_store_due_records.py and test_store_filters.py compare them. No function
   keeps state between calls. */

#include "../protocol/c/properties.h"
#include "c/index.h"
#include "c/scan.h"
#include "c/filter.h"
#include "c/take.h"
#include "c/deliver.h"
#include "c/ledger.h"

static PyMethodDef functions[] = {
    FUNCTION(key_hash),
    FUNCTION(write_keys),
    FUNCTION(add_queue_entry),
    FUNCTION(scan_record),
    FUNCTION(take_records),
    FUNCTION(deliver_records),
    FUNCTION(entries_of),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "triomq.store._speedups", "See protocol/speedups.py.", -1, functions, NULL, NULL, NULL, NULL,
};

static const Constant constants[] = {
    {"MESSAGE_MAGIC", (int32_t)MESSAGE_MAGIC},
    {"FIXED_BYTES", FIXED_BYTES},
    {"BORN_HOST_V6", BORN_HOST_V6},
    {"STORE_HOST_V6", STORE_HOST_V6},
    {"HEADER_BYTES", HEADER_BYTES},
    {"SLOT_BYTES", SLOT_BYTES},
    {"ENTRY_BYTES", ENTRY_BYTES},
    {"PAGE_BYTES", PAGE_BYTES},
    {"HEAD_BYTES", HEAD_BYTES},
    {"LEDGER_HEADER_BYTES", LEDGER_HEADER_BYTES},
    {"LEDGER_UNIT_BYTES", LEDGER_UNIT_BYTES},
    {"LEDGER_BLANK_BYTES", LEDGER_BLANK_BYTES},
    {"LONGEST_LEDGER_ENTRY_BYTES", LONGEST_LEDGER_ENTRY_BYTES},
    {"LEDGER_MAGIC", LEDGER_MAGIC},
    {"RECORD_OFFSET_AT", RECORD_OFFSET_AT},
    {"TRANSACTION_MASK", TRANSACTION_MASK},
    {"MAX_TOPIC_BYTES", MAX_TOPIC_BYTES},
    {"MAX_PROPERTIES", MAX_PROPERTIES},
    {"MAX_PROPERTIES_BYTES", MAX_PROPERTIES_BYTES},
    {"MAX_QUEUE_ID_DIGITS", MAX_QUEUE_ID_DIGITS},
    {"QUEUE_HEAD_BYTES", QUEUE_HEAD_BYTES},
    {"MAX_NAMES", MAX_NAMES},
    {"MAX_STACK", MAX_STACK},
    {NULL, 0},
};

PyMODINIT_FUNC PyInit__speedups(void)
{
    return create_module(&definition, constants);
}
