#!/bin/bash
# Lists the functions of an nccl.h, or of a library, that libnccl.so.2 of this project does not
# export: nccl-names.sh FILE… Ends with 1 if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: scripts/nccl-names.sh nccl.h|libnccl.so…" >&2; exit 2; }
missing=$(for f in "$@"; do
	if head -c 4 "$f" | grep -q ELF; then
		nm -D "$f" | awk '{ print $NF }' | sed 's/@.*//'
	else
		{ grep -oE '\bp?nccl[A-Z][A-Za-z0-9]* *\(' "$f" || [ $? = 1 ]; } | tr -d ' ('
	fi
done | sed -nE 's/^p?nccl([A-Z][A-Za-z0-9]*)$/\1/p' | sort -u | comm -23 - <(grep -E '^[A-Z]' nccl/names.txt | sort))
# Macros and internals that look like functions.
missing=$(grep -vE '^(ResetDebugInitInternal|UniqueId)$' <<<"$missing" || true)
[ -n "$missing" ] || { echo "all there"; exit 0; }
sed 's/^/nccl/' <<<"$missing"
exit 1
