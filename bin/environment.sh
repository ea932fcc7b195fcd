# Read by the scripts beside it: where the project is, and its Python environment.
#
#   project         the directory above bin/
#   python          .venv/bin/python, once `need_environment` or `make_environment EXTRAS` has been called
#
# .venv/.installed-<extras> holds the checksum of what the installation was made from (`ingredients`), so that later runs
# start at once. "plain" stands for no extras.

project=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
program=$(basename -- "$0")
python=$project/.venv/bin/python

say() {
    printf '%s: %s\n' "$program" "$*" >&2
}

# Names of all usable Pythons, newest first.
candidates() {
    for name in python3.15 python3.14 python3.13 python3.12 python3.11 python3 python; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$name"
        fi
    done
}

# The files that an installation depends on: what it needs, and the C speedups that it builds.
ingredients() {
    cat "$project/pyproject.toml" "$project/setup.py" "$project"/src/triomq/*/_speedups.[ch] | cksum
}

is_installed() {
    [ -x "$python" ] && [ "$(cat "$project/.venv/.installed-$1" 2>/dev/null)" = "$(ingredients)" ]
}

# Half of a daemon's boot is compiling where Python may not keep what it compiled (PYTHONDONTWRITEBYTECODE, a read-only
# directory). pip compiles what it installs, but not what it installs as editable.
keep_bytecode() (
    set --
    for package in "$project"/*/__init__.py; do
        set -- "$@" "$(dirname -- "$package")"
    done
    "$python" -m compileall -qq "$@" || true
)

install() {
    what=$project
    [ "$1" = plain ] || what="$project[$1]"
    "$python" -m pip install --quiet --disable-pip-version-check --no-input --editable "$what" || return 1
    keep_bytecode
    ingredients >"$project/.venv/.installed-$1"
}

# The environment with these extras: the one that is there, brought up to date, or a new one.
make_environment() {
    is_installed "$1" && return 0
    if [ -x "$python" ]; then
        say "installing into .venv"
        install "$1" && return 0
        say "not installed; see the messages above (no network?). What is in .venv was left as it is"
        return 1
    fi
    found=$(candidates)
    if [ -z "$found" ]; then
        say "Python 3.11 or newer, with its venv module, is needed and was not found"
        return 1
    fi
    for name in $found; do
        say "making .venv with $("$name" --version 2>&1) and installing into it; this happens once"
        "$name" -m venv --clear "$project/.venv" && install "$1" && return 0
        say "that did not work with $name"
    done
    rm -rf "$project/.venv"
    say "not installed; see the messages above (no network?)"
    return 1
}

# For daemons and tools: whatever was installed before will do.
need_environment() {
    for stamp in "$project"/.venv/.installed-*; do
        [ -f "$stamp" ] && [ -x "$python" ] && return 0
    done
    "$python" -c 'import msgspec, structlog, trio, yaml' >/dev/null 2>&1 || make_environment plain || exit 1
}

# Run a module of the project. -P: the directory the user stands in must not hide our packages.
run_module() {
    PYTHONPATH=$project/src${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
    exec "$python" -P -m "$@"
}

# Whether gcc can build with its sanitizers: some systems have them in packages of their own.
has_sanitizers() {
    [ -n "$(sanitizer_libraries)" ]
}

sanitizer_libraries() {
    found=
    for library in libasan.so libubsan.so; do
        file=$(cc -print-file-name=$library 2>/dev/null)
        [ -f "$file" ] || return 1
        found="$found${found:+:}$file"
    done
    echo "$found"
}

# For the Python that loads extensions built with sanitizers. Python's own allocator would hide overruns.
preload_sanitizers() {
    LD_PRELOAD=$(sanitizer_libraries) || {
        unset LD_PRELOAD
        say "gcc with libasan and libubsan is needed and was not found"
        return 1
    }
    ASAN_OPTIONS=detect_leaks=0
    UBSAN_OPTIONS=print_stacktrace=1
    PYTHONMALLOC=malloc
    TRIOMQ_SANITIZED=1
    export LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS PYTHONMALLOC TRIOMQ_SANITIZED
}

# Run a program of benchmarks/.
run_benchmark() {
    PYTHONPATH=$project/src:$project${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
    exec "$python" -P -m "benchmarks.$@"
}
