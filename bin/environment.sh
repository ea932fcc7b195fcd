# Sourced by the scripts in this directory and in dev/: locates the project and its Python environment.
#
#   project         the directory above bin/
#   python          .venv/bin/python, usable after `need_environment` or `make_environment EXTRAS`
#
# .venv/.installed-<extras> holds the checksum of what the installation was made from (`ingredients`), so that later
# runs start immediately. "plain" stands for no extras. .venv.lock lets one process at a time install.

here=$(dirname -- "$(readlink -f -- "$0")")
project=$(dirname -- "$here")
[ "$(basename -- "$here")" != dev ] || project=$(dirname -- "$project")
program=$(basename -- "$0")
python=$project/.venv/bin/python

say() {
    printf '%s: %s\n' "$program" "$*" >&2
}

# Print the names of all usable Pythons, newest first.
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

# Without cached bytecode (PYTHONDONTWRITEBYTECODE, a read-only directory) half of a daemon's start-up time is compiling.
# pip caches the bytecode of what it installs, except for editable installations.
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

# The environment with these extras: the existing one, brought up to date, or a new one. An existing .venv may be what
# running daemons import from, so it is never cleared or removed here, whatever state it is in.
make_environment() {
    is_installed "$1" && return 0
    if ! command -v flock >/dev/null 2>&1; then
        make_environment_alone "$1"
        return
    fi
    # Daemons that are started side by side wait for the first of them to finish the installation.
    (flock 9 && make_environment_alone "$1") 9>"$project/.venv.lock"
}

make_environment_alone() {
    is_installed "$1" && return 0
    if [ -e "$project/.venv" ] || [ -L "$project/.venv" ]; then
        update_environment "$1"
    else
        create_environment "$1"
    fi
}

update_environment() {
    if ! [ -x "$python" ]; then
        say "$python cannot be executed by this account ($(id -un 2>/dev/null || id -u))"
        say "start as the account that installed it, or make .venv and the Python it links to accessible to this one"
        say ".venv was left as it is; if no daemon uses it, remove it, and the next start makes a new one"
        return 1
    fi
    say "installing into .venv"
    install "$1" && return 0
    say "installation failed; see the messages above (no network?). Nothing was removed from .venv"
    return 1
}

create_environment() {
    found=$(candidates)
    if [ -z "$found" ]; then
        say "Python 3.11 or newer with its venv module is required and was not found"
        return 1
    fi
    # mkdir makes sure that what is cleared and removed below is what this run made.
    mkdir "$project/.venv" || return 1
    trap 'rm -rf "$project/.venv"; exit 1' HUP INT TERM
    for name in $found; do
        say "creating .venv with $("$name" --version 2>&1) and installing into it; this happens once"
        if "$name" -m venv --clear "$project/.venv" && install "$1"; then
            trap - HUP INT TERM
            return 0
        fi
        say "that failed with $name"
    done
    rm -rf "$project/.venv"
    trap - HUP INT TERM
    say "installation failed; see the messages above (no network?)"
    return 1
}

# For daemons and tools: any earlier installation is good enough.
need_environment() {
    for stamp in "$project"/.venv/.installed-*; do
        [ -f "$stamp" ] && [ -x "$python" ] && return 0
    done
    "$python" -c 'import msgspec, structlog, trio, yaml' >/dev/null 2>&1 || make_environment plain || exit 1
}

# Run a module of the project. -P keeps packages in the current directory from hiding ours.
run_module() {
    PYTHONPATH=$project/src${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
    exec "$python" -P -m "$@"
}

# Run the function `main` of a module. `python -m` imports as much as a short command needs as a whole.
run_main() {
    PYTHONPATH=$project/src${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
    module=$1
    shift
    exec "$python" -P -c "import sys; from $module import main; sys.exit(main())" "$@"
}

# Spark needs Java 17; without it its tests are skipped by name and its half gigabyte is not installed.
has_java() {
    command -v java >/dev/null 2>&1 && java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])'
}

# The same of the tests that look at the dashboard: tests/dashboard/browsed.py has these names, too.
has_chromium() {
    for name in chromium chromium-browser google-chrome; do
        command -v $name >/dev/null 2>&1 && return 0
    done
    return 1
}

# The extras for what this machine can test. The frameworks cost 15 seconds.
test_extras() {
    extras=test,frameworks
    if has_java; then extras=$extras,spark; fi
    if has_chromium; then extras=$extras,browser; fi
    echo $extras
}

# Whether an installation for tests is up to date, whatever this machine could test when it was made.
has_test_installation() {
    for more in "" ,spark ,browser ,spark,browser; do
        is_installed "test,frameworks$more" && return 0
    done
    return 1
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
