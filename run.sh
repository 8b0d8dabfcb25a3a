#!/usr/bin/env bash
# The experiment batch: one reproducer in several modes, plotted and compared.
#
#   bash run.sh                                   sam_tanh, 1000 epochs, in cpu, compile and lazy mode
#   SUFFIX=short EPOCHS=50 bash run.sh            another batch beside the first
#   MODES=cpu,compile REPRODUCER=reproducers/char_gpt.py EPOCHS=30 bash run.sh
#   SUFFIX=short bash run.sh --force              the same batch again, replacing its files
#
# Arguments go to `numdrift run`. Results are in runs/<investigation>/.
set -uo pipefail
cd "$(dirname "$0")"
OUT=${OUT:-runs}
SUFFIX=${SUFFIX:-main}
MODES=${MODES-cpu,compile,lazy}
REPRODUCER=${REPRODUCER:-reproducers/sam_tanh.py}

bash scripts/setup || exit 3
export PATH="$PWD/.venv/bin:$PATH"

force=()
for argument in "$@"; do
    if [ "$argument" = --force ]; then force=(--force); fi
done

numdrift run "$REPRODUCER" --modes "$MODES" --suffix "$SUFFIX" --out "$OUT" "$@" -- ${EPOCHS:+--epochs "$EPOCHS"}
status=$?
if [ "$status" -ne 0 ] && [ "$status" -ne 3 ]; then exit "$status"; fi
numdrift plot --out "$OUT" --suffix "$SUFFIX" "${force[@]}"
numdrift compare --out "$OUT" --suffix "$SUFFIX"
exit "$status"
