#!/usr/bin/env bash
# Makes the mini data set. The two arguments of the published command, a config file and a mode, are not needed here:
#   bash test_tipc/prepare.sh test_tipc/configs/mvf/train_infer_python.txt 'lite_train_lite_infer'
set -euo pipefail
cd "$(dirname "$0")/.."
"${PYTHON:-python}" mini_ucf.py --dataset_root test_tipc/data/mini_ucf
