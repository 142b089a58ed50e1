#!/usr/bin/env bash
# From nothing to the report, timed: a new environment, the wheel, the logs in tests/, five commands.
#
#   docs/five_minutes.sh                       # builds the wheel first
#   docs/five_minutes.sh WHEEL [PYTHON]
#
# Five of the six models of the logs are calibrated; the sixth is new, and only its answers to the
# selected questions are used. It fails if it takes longer than five minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${2:-python3}
wheel=${1:-}
if [ -z "$wheel" ]; then
  "$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder/dist" "$here/.."
  wheel=$(echo "$folder"/dist/*.whl)
fi
wheel=$(cd "$(dirname "$wheel")" && pwd)/$(basename "$wheel")

step() { # NAME COMMAND...: run it, and print its seconds
  local name=$1 start=$SECONDS
  shift
  "$@"
  printf '%s: %d s\n\n' "$name" $((SECONDS - start))
}

SECONDS=0
cd "$folder"
step environment "$python" -m venv clean
step "install $(basename "$wheel")" clean/bin/python -m pip install --quiet --disable-pip-version-check "$wheel"
export PATH="$folder/clean/bin:$PATH" IRTCAT_CACHE="$folder/cache"
tar -xJf "$here/../tests/io/logs.tar.xz" lm_eval
mv lm_eval logs
mkdir new
mv logs/simorg__sim-5 new

step import irtcat import logs
step fit irtcat fit responses.npz
step select irtcat select bank.npz -k 20 --responses responses.npz
step predict irtcat predict responses.npz items.csv new
step report irtcat report bank.npz predictions.csv

cat predictions.csv
grep -q "simorg/sim-5" predictions.csv
grep -q "simorg/sim-5" report.html
echo "From nothing to the report: $SECONDS s"
[ "$SECONDS" -lt 300 ]
