#!/bin/sh
# Step 4. Flags are passed on: sh train.sh --full --init he08
cd "$(dirname "$0")" || exit 2
exec "${PYTHON:-python}" train.py "$@"
