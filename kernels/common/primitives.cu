// What the primitives of conversions and of whole warps give, for the tests: a warp takes 32 numbers in each of its lanes.
#include "device.cuh"

KERNEL(32) primitives(const float* __restrict__ numbers, const uint32_t* __restrict__ words, uint32_t* __restrict__ out) {
  const int lane = (int)threadIdx.x;
  for (int i = 0; i < 32; i++) {
    const int place = i * 32 + lane;
    const float number = load(numbers + place);
    const uint32_t word = load(words + place);
    uint32_t* const results = out + place * 8;
    store(results, pack_f16(number, -number));
    store(results + 1, pack_bf16(number, -number));
    store(results + 2, f16_of_low_e4m3(word));
    store(results + 3, f16_of_high_e4m3(word));
    store(results + 4, multiply_f16x2(word, 0x3e003c00u));  // by 1 and by 1.5
    store(results + 5, bits_of_float(exp2_fast(number)));
    store(results + 6, bits_of_float(larger(number, float_of_bits(word))));
    store(results + 7, transpose_matrix(word));
  }
}
