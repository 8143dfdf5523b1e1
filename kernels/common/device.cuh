// The primitives that every kernel here is written in. One source, two executions: on a GPU they are PTX; with EMULATED
// defined they are the same operations by their PTX definition on a CPU (emulator.hpp). No CUDA header is needed.
#pragma once

#ifdef EMULATED
#include "emulator.hpp"
#else

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#else
#include <cstdint>
#endif

#define DEVICE static __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__
// A kernel of this many threads a block. Its name is not mangled.
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
// One of which this many blocks shall fit onto a multiprocessor, as far as registers go.
#define KERNEL_RESIDENT(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
// The block's dynamic shared memory, under this name.
#define SHARED_MEMORY(name) extern __shared__ __align__(128) uint8_t name[]
// A pointer into it; the emulator checks every use.
template <class T> using InShared = T*;
template <class T> DEVICE InShared<T> at_byte(uint8_t* memory, int offset) { return (T*)(memory + offset); }
DEVICE InShared<uint32_t> at_word(InShared<uint8_t> bytes) { return (uint32_t*)bytes; }

// ------------------------------------------------------------------------------------------------ barriers

DEVICE void block_barrier() { __syncthreads(); }
// Says whether any thread of the block voted so.
DEVICE bool block_barrier_any(bool vote) { return __syncthreads_or(vote); }
DEVICE void warp_barrier() { __syncwarp(); }
// One of fifteen more barriers (1 to 15), at which so many threads of the block meet, in whole warps.
DEVICE void barrier_among(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }

// ------------------------------------------------------------------------------------------------ global memory

// Loads data that is read once and by nobody's neighbour: through the read-only path, not kept in L1.
DEVICE uint32_t load_once(const uint8_t* address) {
  uint32_t value;
  asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}
DEVICE uint32_t load_once(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}
DEVICE uint2 load_once(const uint2* address) {
  uint2 value;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(address));
  return value;
}
DEVICE uint4 load_once(const uint4* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(address));
  return value;
}

// Aligned to the size of T.
template <class T> DEVICE T load(const T* address) { return __ldg(address); }
template <class T> DEVICE void store(T* address, T value) { *address = value; }
// What the kernel before this one wrote, which may still be at work when this one begins: never through a cache that
// is not told of it, and never moved before wait_for_kernels_before().
DEVICE float2 load_written(const float2* address) {
  float2 value;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(address) : "memory");
  return value;
}
DEVICE float4 load_written(const float4* address) {
  float4 value;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w) : "l"(address) : "memory");
  return value;
}

// Brings the sector of this address into L2; says nothing about when.
DEVICE void prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// ------------------------------------------------------------------------------------------------ cp.async

// A place in shared memory, as the instructions below take it: constants added to it cost nothing.
typedef uint32_t SharedAddress;
DEVICE SharedAddress shared_address(const void* pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }
// Copies 16 bytes; zeros where not valid, and then nothing is read.
DEVICE void copy_async_16(SharedAddress shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0) : "memory");
}
DEVICE void copy_async_16(void* shared, const void* global, bool valid) { copy_async_16(shared_address(shared), global, valid); }
// Copies 8 bytes; zeros where not valid, and then nothing is read.
DEVICE void copy_async_8(SharedAddress shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(global), "r"(valid ? 8 : 0) : "memory");
}
DEVICE void copy_async_4(SharedAddress shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
DEVICE void copy_async_4(void* shared, const void* global) { copy_async_4(shared_address(shared), global); }
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `groups` of this thread's committed groups are under way. Other threads need a barrier behind it.
template <int groups> DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory"); }

// ------------------------------------------------------------------------------------------------ whole warps

DEVICE uint32_t warp_max(uint32_t value) { return __reduce_max_sync(0xffffffffu, value); }
DEVICE uint32_t warp_min(uint32_t value) { return __reduce_min_sync(0xffffffffu, value); }
DEVICE uint32_t warp_ballot(bool vote) { return __ballot_sync(0xffffffffu, vote); }
DEVICE uint32_t warp_read(uint32_t value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
DEVICE float warp_read_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
DEVICE void load_matrices(uint32_t (&tile)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3]) : "r"(row) : "memory");
}
DEVICE void load_matrices_transposed(uint32_t (&tile)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3]) : "r"(row) : "memory");
}
DEVICE void load_matrices(uint32_t (&tile)[4], const void* row) { load_matrices(tile, shared_address(row)); }
DEVICE void load_matrices_transposed(uint32_t (&tile)[4], const void* row) { load_matrices_transposed(tile, shared_address(row)); }
// Turns an 8x8 matrix of 16-bit elements: lane l brings row l / 4, columns 2 (l % 4) and the next, and takes them of the result.
DEVICE uint32_t transpose_matrix(uint32_t pair) {
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}
// sum (16x8, float) += a (16x16, bf16) x b (16x8, bf16), in the fragment layouts of PTX.
DEVICE void multiply_add_16x8x16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same for f16.
DEVICE void multiply_add_16x8x16_f16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ------------------------------------------------------------------------------------------------ registers

// Hides from the compiler how a number came about, which so is not computed again for each use.
DEVICE void keep(uint32_t& number) { asm volatile("" : "+r"(number)); }
DEVICE void keep(const uint8_t*& address) { asm volatile("" : "+l"(address)); }

// ------------------------------------------------------------------------------------------------ kernels in a row

// The kernel behind this one in the stream, if it was launched to overlap, may start when all blocks have said so.
DEVICE void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Behind this, all that kernels before this one wrote can be read. Nothing but arguments may be used before.
DEVICE void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ------------------------------------------------------------------------------------------------ numbers

// Bytes of the pair (high, low), picked by the four hexadecimal digits of the selector.
DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) { return __byte_perm(low, high, selector); }
// Two floats rounded to nearest even; `low` is in the low half. NaN becomes 0x7fff.
DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// a * b + c in both halves, rounded once; subnormal numbers are kept.
DEVICE uint32_t multiply_add_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
// The same in f16; beyond 65,504 infinity.
DEVICE uint32_t pack_f16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// a * b in both halves, rounded once; subnormal numbers are kept.
DEVICE uint32_t multiply_f16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// Two codes of e4m3, in the low and in the high half of a word, as two f16. Exact; NaN stays NaN.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
DEVICE uint32_t f16_of_e4m3(uint32_t codes) {  // codes in the high bytes of the halves
  const uint32_t shifted = codes & 0x80008000u | codes >> 1 & 0x3f803f80u;  // 2^8 times too small
  const uint32_t nan = (codes & 0x7f007f00u) + 0x01000100u & 0x80008000u;
  uint32_t exact;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(exact) : "r"(shifted), "r"(0x5c005c00u));
  return exact | (nan >> 15) * 0x7fffu;
}
DEVICE uint32_t f16_of_low_e4m3(uint32_t codes) { return f16_of_e4m3(__byte_perm(codes, 0, 0x1404)); }
DEVICE uint32_t f16_of_high_e4m3(uint32_t codes) { return f16_of_e4m3(__byte_perm(codes, 0, 0x3424)); }
#else
DEVICE uint32_t f16_of_low_e4m3(uint32_t codes) {
  uint32_t pair;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }" : "=r"(pair) : "r"(codes));
  return pair;
}
DEVICE uint32_t f16_of_high_e4m3(uint32_t codes) {
  uint32_t pair;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }" : "=r"(pair) : "r"(codes));
  return pair;
}
#endif
// 2^x and log2(x), to about 2^-22; a result or an argument that is subnormal counts as zero.
DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The larger one; the other one where one is NaN.
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE uint32_t bits_of_float(float value) { return __float_as_uint(value); }
DEVICE float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
DEVICE uint64_t bits_of_double(double value) { return (uint64_t)__double_as_longlong(value); }
DEVICE double double_of_bits(uint64_t bits) { return __longlong_as_double((long long)bits); }
DEVICE float multiply_rounded(float a, float b) { return __fmul_rn(a, b); }
DEVICE double add_rounded(double a, double b) { return __dadd_rn(a, b); }
DEVICE double subtract_rounded(double a, double b) { return __dsub_rn(a, b); }
DEVICE int count_bits(uint32_t bits) { return __popc(bits); }
DEVICE int lowest_bit(uint32_t bits) { return __ffs((int)bits) - 1; }

#endif
