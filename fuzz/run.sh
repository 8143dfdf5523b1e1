#!/bin/sh
# Fuzzes the native scanner for MINUTES (default 1), from the seeds and what earlier runs found. Needs clang with its
# sanitizers; says so and stops where it is absent.
set -eu
cd "$(dirname "$0")/.."
minutes=${1:-${MINUTES:-1}}
clang=${CLANG:-clang}
work=build/fuzz
command -v "$clang" >/dev/null || { echo "fuzz: no clang here (apt-get install clang libclang-rt-14-dev)"; exit 0; }
mkdir -p "$work/found"
"$clang" -std=c99 -g -O1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    fuzz/fuzz_scan.c -lm -o "$work/fuzz_scan"
exec "$work/fuzz_scan" -max_total_time=$((minutes * 60)) -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
    -dict=fuzz/scan.dict -print_final_stats=1 -reload=0 -artifact_prefix="$work/" "$work/found" fuzz/seeds
