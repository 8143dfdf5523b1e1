// Adds up what blocks (of mla_block.cuh or mla_pairs.cuh) left of one request's splits: sum of weight * output, where a split weighs
// 2^(its level - the largest). A block takes 8 rows and 64 dimensions; blockIdx.x counts tiles of rows through all
// requests, blockIdx.y the dimensions. Teams of four warps take turns with the splits, so that many loads are under way.
//
// Compiled for what mla_common.cuh is, and TEAMS.
#include "device.cuh"
#include "mla_common.cuh"

KERNEL(128 * TEAMS) mla_combine(const float4* partial_sums, const float2* partial_rows, uint16_t* __restrict__ out,
                        float* __restrict__ lse, const float* __restrict__ sinks, int32_t heads, int32_t row_count, int32_t row_blocks,
                        int32_t splits) {
  SHARED_MEMORY(memory);
  const Place at = place_of((int)threadIdx.x);
  const int tile = (int)blockIdx.x % TILES, row_block = (int)blockIdx.x / TILES % row_blocks;
  const int request = (int)blockIdx.x / TILES / row_blocks;
  const int64_t first_block = ((int64_t)request * row_blocks + row_block) * splits;
  const int first_row = row_block * ROWS + tile * 8;
  InShared<float4> team_sums = at_byte<float4>(memory, 0);  // [TEAMS - 1, 128]
  InShared<float> weights = at_byte<float>(memory, (TEAMS - 1) * 128 * 16), sums = weights + splits * 8;  // [splits, 8] each
  wait_for_kernels_before();
  for (int row = at.warp; row < 8; row += 4 * TEAMS) {
    const float2* const parts = partial_rows + first_block * ROWS + tile * 8 + row;
    float most = MINUS_INFINITY, sum = 0;
#pragma unroll 4
    for (int split = at.lane; split < splits; split += 32) {
      const float2 part = load_written(parts + split * ROWS);
      weights[split * 8 + row] = part.x;
      sums[split * 8 + row] = part.y;
      most = larger(most, part.x);
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) most = larger(most, warp_read_xor(most, lanes));
    const float base = base_of(most);
    for (int split = at.lane; split < splits; split += 32) {
      const float weight = exp2_fast(weights[split * 8 + row] - base);
      weights[split * 8 + row] = weight;
      sum += weight * sums[split * 8 + row];
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) sum += warp_read_xor(sum, lanes);
    const bool there = first_row + row < row_count;
    const float natural = log_of(most, sum);
    float inverse = inverse_of(sum);
    if (sinks && there) inverse *= left_by_sink(natural, load(sinks + (first_row + row) % heads));
    for (int split = at.lane; split < splits; split += 32) weights[split * 8 + row] = weights[split * 8 + row] * inverse;
    if (there && blockIdx.y == 0 && at.lane == 0) store(lse + (int64_t)request * row_count + first_row + row, natural);
  }
  block_barrier();
  const int slice = (int)blockIdx.y, m = at.warp % 4, team = at.warp / 4, place = at.thread % 128;
  const int64_t block_size = 8 * 4 * TILES * 32;
  const float4* const from = partial_sums + first_block * block_size + ((slice * 4 + m) * TILES + tile) * 32 + at.lane;
  float total[4] = {};
#pragma unroll 8
  for (int split = team; split < splits; split += TEAMS) {
    const float2 weight = at_byte<float2>(memory, (TEAMS - 1) * 128 * 16)[split * 4 + at.pair];
    const float4 four = load_written(from + split * block_size);  // even if both weigh nothing: infinity counts whatever it weighs
    total[0] += four.x * weight.x;
    total[1] += four.y * weight.y;
    total[2] += four.z * weight.x;
    total[3] += four.w * weight.y;
  }
  if (TEAMS > 1 && team > 0) team_sums[(team - 1) * 128 + place] = make_float4(total[0], total[1], total[2], total[3]);
  if (TEAMS > 1) block_barrier();
  if (team > 0) return;
#pragma unroll
  for (int other = 0; other < TEAMS - 1; other++) {
    const float4 four = team_sums[other * 128 + place];
    total[0] += four.x;
    total[1] += four.y;
    total[2] += four.z;
    total[3] += four.w;
  }
  store_output(out + (int64_t)request * row_count * VALUES, total, 1, 1, first_row + at.pair * 2, row_count, slice, m, at);
}
