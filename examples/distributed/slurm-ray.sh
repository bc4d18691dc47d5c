#!/bin/bash
# Every GPU of four machines: Slurm starts Ray on each, and one pytest asks all of them.
#
#     sbatch examples/distributed/slurm-ray.sh
#
# Each machine needs this project's virtual environment at the same path, with pytest-fib[ray].
#SBATCH --job-name=kernels
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=02:00:00
set -euo pipefail
source .venv/bin/activate

# Ray asks everyone for this, who could otherwise run programs as you; srun passes it on.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')

port=6379
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address="$(getent ahostsv4 "$head" | awk 'NR == 1 {print $1}'):$port"

srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --port="$port" --num-gpus="$SLURM_GPUS_ON_NODE" --block &
until ray status --address="$address" > /dev/null 2>&1; do sleep 1; done
if ((SLURM_JOB_NUM_NODES > 1)); then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) \
        --exclude="$head" \
        ray start --address="$address" --num-gpus="$SLURM_GPUS_ON_NODE" --block &
fi
gpus=$((SLURM_JOB_NUM_NODES * SLURM_GPUS_ON_NODE))
until ray status --address="$address" | grep -q "/$gpus.0 GPU"; do sleep 1; done

# One process of pytest for each GPU: that many items are evaluated at a time.
pytest -n "$gpus" --fib-ray="$address" --fib-bench --fib-traces="traces-$SLURM_JOB_ID.jsonl"
