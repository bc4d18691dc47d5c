#!/bin/bash
# Sixteen jobs of one GPU each, which need nothing of each other: each runs a part of the tests.
#
#     job=$(sbatch --parsable examples/distributed/slurm-shards.sh)
#     sbatch --dependency=afterany:$job --wrap="cat traces/part-*.jsonl > traces/last/all.jsonl"
#
# The second job keeps what the next run balances its parts by.
#SBATCH --job-name=kernels
#SBATCH --array=1-16
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=01:00:00
set -euo pipefail
source .venv/bin/activate

mkdir -p traces/last
pytest --fib-bench --fib-shard="$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
    --fib-shard-by=traces/last --fib-traces="traces/part-$SLURM_ARRAY_TASK_ID.jsonl"
