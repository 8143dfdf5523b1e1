// The rate of mma.sync: every warp multiplies tiles that stay in its registers, eight independent sums at a time.
#include "device.cuh"

KERNEL(256) multiply_only(int32_t rounds, float* __restrict__ out) {
  const int thread = (int)threadIdx.x;
  float sums[8][4] = {};
  uint32_t a[4];
  for (int i = 0; i < 4; i++) a[i] = 0x3c003b00u + thread * 257u + i;  // small numbers, none equal
  const uint32_t b0 = 0x3b803a80u + thread * 129u, b1 = 0xbb003c80u + thread * 65u;
  for (int round = 0; round < rounds; round++)
#pragma unroll
    for (int i = 0; i < 8; i++) multiply_add_16x8x16(sums[i], a, b0, b1);
  float total = 0;
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 4; j++) total += sums[i][j];
  store(out + (int64_t)blockIdx.x * 256 + thread, total);
}
