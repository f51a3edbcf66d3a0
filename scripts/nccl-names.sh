#!/bin/bash
# Lists the functions of an nccl.h or rccl.h, or of such a library, that this project's does not
# export: nccl-names.sh FILE… Ends with 1 if there are any. librccl.so.1 is compared with where a file is of
# RCCL's, by its name or its text.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: scripts/nccl-names.sh nccl.h|rccl.h|libnccl.so|librccl.so…" >&2; exit 2; }
ours=$(sed -nE 's/^([A-Z][A-Za-z0-9]*)$/nccl\1/p' nccl/names.txt)
# Macros, types and internals that look like functions, and the beginning of names in comments.
others='ResetDebugInitInternal|UniqueId|RedOpCreate'
missing=$(for f in "$@"; do
	lists=$ours
	if [[ $(basename "$f") == *rccl* ]] || grep -q RCCL_BFLOAT16 "$f"; then
		lists+=$'\n'$(grep -E '^[a-z]' nccl/rccl-names.txt)
	fi
	if head -c 4 "$f" | grep -q ELF; then
		nm -D "$f" | awk '{ print $NF }' | sed 's/@.*//'
	else
		{ grep -oE '\bp?(nccl|msccl)[A-Z][A-Za-z0-9]* *\(' "$f" || [ $? = 1 ]; } | tr -d ' ('
	fi | sed -nE 's/^p?((nccl|msccl)[A-Z][A-Za-z0-9]*)$/\1/p' | { grep -vE "^nccl($others)$" || [ $? = 1 ]; } | sort -u | comm -23 - <(sort <<<"$lists")
done)
[ -n "$missing" ] || { echo "all there"; exit 0; }
sort -u <<<"$missing"
exit 1
