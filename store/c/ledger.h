/* The entries of a group's ledger: see dledger/ledger/runs.py. A part of _speedups.c. */

#define LEDGER_HEADER_BYTES 48
#define LEDGER_UNIT_BYTES 32
#define LEDGER_BLANK_BYTES 8
#define LONGEST_LEDGER_ENTRY_BYTES 4194304
#define LEDGER_MAGIC 1

/* Write header and unit of the entry at `pos` whose body is the record of `size` bytes. */
static void write_ledger_entry(
    unsigned char *entry, unsigned char *unit, const unsigned char *record, uint32_t size, uint64_t index, uint64_t term,
    uint64_t pos)
{
    uint32_t whole = size + LEDGER_HEADER_BYTES;
    unsigned char *at = put64(put64(put64(put32(put32(entry, LEDGER_MAGIC), whole), index), term), pos);
    at = put32(put32(put32(put32(at, 0), 0), 0), size);
    put_data(at, record, size);
    put64(put64(put32(put64(put32(unit, LEDGER_MAGIC), pos), whole), index), term);
}

PyDoc_STRVAR(entries_of_doc,
"entries_of($module, records, at, index, term, pos, room, /)\n--\n\n-> (entries, index units, where the rest begins)");

static PyObject *entries_of(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t from, index, term, pos, room;
    if (!count_is(count, 6, "entries_of") || !is_bytes(arguments[0]) || !read_number(arguments[1], 64, &from)
        || !read_number(arguments[2], 64, &index) || !read_number(arguments[3], 64, &term)
        || !read_number(arguments[4], 64, &pos) || !read_number(arguments[5], 64, &room))
        return NULL;
    const unsigned char *records = (const unsigned char *)PyBytes_AS_STRING(arguments[0]);
    int64_t end = PyBytes_GET_SIZE(arguments[0]);
    if (from < 0 || from > end || index < 0 || pos < 0 || room < 0 || index > INT64_MAX / 2 || pos > INT64_MAX / 2
        || room > INT64_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "a place is outside of the ledger");
        return NULL;
    }
    int64_t at = from, used = 0, found = 0;
    while (at < end) {
        int64_t size = end - at < FIXED_BYTES ? -1 : (int32_t)get32(records + at);
        if (size < FIXED_BYTES || size > end - at) {
            PyErr_Format(PyExc_ValueError, "the record at %lld of %lld bytes is cut off", (long long)at, (long long)end);
            return NULL;
        }
        int64_t whole = size + LEDGER_HEADER_BYTES;
        if (whole > LONGEST_LEDGER_ENTRY_BYTES || whole + LEDGER_BLANK_BYTES > room - used)
            break;
        int64_t named = (int64_t)get64(records + at + RECORD_OFFSET_AT), here = pos + used + LEDGER_HEADER_BYTES;
        if (named != here) {
            PyErr_Format(
                PyExc_ValueError, "the record for %lld would be written to %lld", (long long)named, (long long)here);
            return NULL;
        }
        used += whole;
        at += size;
        found++;
    }
    PyObject *entries = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)used);
    PyObject *units = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(found * LEDGER_UNIT_BYTES));
    if (entries != NULL && units != NULL) {
        unsigned char *entry = (unsigned char *)PyBytes_AS_STRING(entries);
        unsigned char *unit = (unsigned char *)PyBytes_AS_STRING(units);
        for (at = from, used = 0; found > 0; found--, index++, unit += LEDGER_UNIT_BYTES) {
            uint32_t size = get32(records + at);
            write_ledger_entry(
                entry + used, unit, records + at, size, (uint64_t)index, (uint64_t)term, (uint64_t)(pos + used));
            used += size + LEDGER_HEADER_BYTES;
            at += size;
        }
    }
    PyObject *items[] = {entries, units, PyLong_FromLongLong(at)};
    return tuple_of(items, 3);
}
