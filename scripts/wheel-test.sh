#!/bin/bash
# The wheel that pip builds of this tree works in an empty virtual environment, without a compiler, a network, or the tree. Its
# tag says which glibc it needs, which is 2.28 where zig can be had. WHEEL_PYTHON is the Python; status 0 and a line on stderr where there is none.
# The same wheel is then installed for each other Python, one of a version, that is in PATH or that pyenv has.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$PWD
python=${WHEEL_PYTHON:-python3}
if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
	echo "wheel-test: NOT run: no Python from 3.10 on with venv and ensurepip in PATH" >&2
	exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 143' HUP INT TERM
oldest=_
if scripts/zig.sh >/dev/null; then
	oldest=_2_28_
fi
"$python" -m venv "$tmp/venv"
pip=("$tmp/venv/bin/python" -m pip --disable-pip-version-check -q --no-cache-dir)
"${pip[@]}" wheel --no-index --no-deps -w "$tmp" .
wheels=("$tmp"/*.whl)
case ${wheels[*]} in
"$tmp"/mscclpp-*-py3-none-manylinux"$oldest"*x86_64.whl) ;;
*)
	echo "wheel-test: ${wheels[*]}: expected one of manylinux$oldest" >&2
	exit 1
	;;
esac
"${pip[@]}" install --no-index --no-deps "${wheels[0]}"
cp examples/python/*.py "$tmp"
cd "$tmp" # where no source tree is
mkdir home
run() { env -i PATH="$tmp/venv/bin:$tmp/none" HOME="$tmp/home" "$@"; }
# /bin has the shell and env; compilers are not in PATH.
run mscclpp-run -n 4 -- python allreduce.py | tee out
[ "$(grep -c 'of 4: 1000 sums are right' out)" = 4 ]
run python -m mscclpp -n 2 -- python allreduce.py >out
[ "$(grep -c 'of 2: 1000 sums are right' out)" = 2 ]
run python -m mscclpp.run --nproc-per-node 2 allreduce.py >out
[ "$(grep -o 'of 2: 1000 sums are right' out | wc -l)" = 2 ] # the ends of lines are written by themselves there
# All plugins can be used or say why not, and the images are of all levels.
run mscclpp-run plugins
run python - <<'END'
import importlib.metadata, json, os, mscclpp
files = {str(f) for f in importlib.metadata.files("mscclpp")}
assert any(f.endswith("licenses/THIRD_PARTY_NOTICES") for f in files), "no notices"
for level in ("v2", "v3", "v4"):
    assert any(f.endswith(f"reduce-f32-x86-64-{level}.so") for f in files), level
assert os.path.isfile(os.path.join(mscclpp.get_include(), "mscclpp_plans.h")) # which mscclpp.h includes
assert os.path.dirname(mscclpp.get_include()) == os.path.dirname(mscclpp.get_lib()) == os.path.dirname(mscclpp.__file__)
print(mscclpp.library_version())
END
"${pip[@]}" uninstall -y mscclpp
[ -z "$(find "$tmp/venv" -name '*mscclpp*')" ]
version() { "$1" -c 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2]) if sys.version_info >= (3, 10) else sys.exit(1)' 2>/dev/null; }
seen=" $(version venv/bin/python) "
for other in python3.{10..14} "$HOME"/.pyenv/versions/3.1*/bin/python3; do
	name=$(version "$other") || continue
	case $seen in *" $name "*) continue ;; esac
	seen+="$name "
	rm -rf venv
	"$other" -m venv venv
	"${pip[@]}" install --no-index --no-deps "${wheels[0]}"
	run python -W error -m mscclpp -n 2 -- python -W error allreduce.py >out
	[ "$(grep -c 'of 2: 1000 sums are right' out)" = 2 ]
done
echo "wheel-test: the wheel works on Python$seen"
"$tree/scripts/wheel-314.sh"
