// A small matrix product: sum [64, 32] (float) = left [64, depth] x right [depth, 32] (bf16), depth a multiple of 32. It is
// there to test what the larger kernels stand on: a ring of cp.async tiles, ldmatrix both ways, mma, and the emulator.
#include "device.cuh"

const int LINES = 64, COLUMNS = 32, SLICE = 32, STAGES = 2;
const int PITCH = SLICE * 2 + 16;  // bytes from row to row: an odd number of 16, so that ldmatrix meets each bank once
const int LEFT_BYTES = LINES * PITCH, STAGE_BYTES = LEFT_BYTES + SLICE * PITCH;

DEVICE void copy_slice(uint8_t* stage, const uint16_t* left, const uint16_t* right, int depth, int slice, int thread) {
  for (int i = thread; i < LINES * 4; i += 128)
    copy_async_16(stage + i / 4 * PITCH + i % 4 * 16, left + i / 4 * depth + slice * SLICE + i % 4 * 8, true);
  for (int i = thread; i < SLICE * 4; i += 128)
    copy_async_16(stage + LEFT_BYTES + i / 4 * PITCH + i % 4 * 16, right + (slice * SLICE + i / 4) * COLUMNS + i % 4 * 8, true);
}

KERNEL(128) tile_product(const uint16_t* __restrict__ left, const uint16_t* __restrict__ right, int32_t depth, float* __restrict__ sum) {
  SHARED_MEMORY(memory);
  const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int slices = depth / SLICE;
  float sums[4][4] = {};
  copy_slice(memory, left, right, depth, 0, thread);
  copy_async_commit();
  for (int slice = 0; slice < slices; slice++) {
    if (slice + 1 < slices) copy_slice(memory + (slice + 1) % STAGES * STAGE_BYTES, left, right, depth, slice + 1, thread);
    copy_async_commit();
    copy_async_wait<1>();
    block_barrier();  // the slice of every thread is there
    const uint8_t* const stage = memory + slice % STAGES * STAGE_BYTES;
    for (int k = 0; k < SLICE; k += 16) {
      uint32_t a[4], b[4];
      load_matrices(a, stage + (warp * 16 + lane % 16) * PITCH + k * 2 + lane / 16 * 16);
      for (int n = 0; n < 4; n += 2) {
        load_matrices_transposed(b, stage + LEFT_BYTES + (k + lane % 16) * PITCH + n * 16 + lane / 16 * 16);
        multiply_add_16x8x16(sums[n], a, b[0], b[1]);
        multiply_add_16x8x16(sums[n + 1], a, b[2], b[3]);
      }
    }
    block_barrier();  // nobody reads the slice that is overwritten next
  }
  for (int n = 0; n < 4; n++)
    for (int i = 0; i < 4; i++)
      store(sum + (warp * 16 + lane / 4 + i / 2 * 8) * COLUMNS + n * 8 + lane % 4 * 2 + i % 2, sums[n][i]);
}
