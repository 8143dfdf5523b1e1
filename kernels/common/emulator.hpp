// Runs a kernel's source on a CPU, one block after another; every CUDA thread is a fiber.
//
// What the GPU leaves open is made to hurt here:
// - shared memory starts as 0xff bytes (NaN), and a guard behind it must stay as it was;
// - threads run in an order shuffled by the seed, which changes at every turn; with bit 1 of the seed set, one warp runs as
//   far as it can before another begins, so that warps are as far apart as barriers allow;
// - data of cp.async lands at the matching wait, or with bit 0 of the seed set at once: both are allowed on a GPU;
// - every access to global memory must be aligned and lie in one of the arrays that the kernel was given;
// - so must every use of a pointer into shared memory (InShared);
// - with bit 4 of the seed set, what one thread wrote there another may read, and what it read another may write, only behind a
//   barrier of both; that lanes of a warp met at another operation does not count;
// - every warp operation must find all 32 lanes at the same one.
// Blocks run one after another, so communication between blocks is not emulated.
#pragma once

// No containers of the standard library: each kernel is compiled many times, and their headers take half of that.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

struct uint2 { uint32_t x, y; };
struct uint4 { uint32_t x, y, z, w; };
struct int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

enum class State { running, at_block_barrier, at_barrier_among, at_warp_operation, done };
// One cp.async that has not landed.
struct Copy { uint8_t* target; uint8_t bytes[16]; int count, group; };
struct Fiber {
  ucontext_t start;
  jmp_buf resume;
  bool started;
  State state;
  int waits_at;  // which of the barriers among some
  int groups;  // committed so far: the number of the group that is open
  Copy* copies;  // in the order of their groups
  int copy_count, copy_room;
};
// A barrier of some of the block's threads.
struct BarrierAmong { int threads, arrived; };
// What 32 lanes bring to a warp operation and take from it.
struct Meeting { const char* name = nullptr; int arrived = 0; uint64_t in[32][8]; uint64_t out[32][4]; };
struct Counts { long block_barriers, warp_operations, matrix_loads, multiplications, async_copies; };

// One array that the kernel was given.
struct Region { unsigned long start, end; };

static const size_t STACK = 64 * 1024, GUARD = 4096;
static const int MOST_THREADS = 1024;
static Fiber fibers[MOST_THREADS];
static Meeting meetings[MOST_THREADS / 32];
static char* stacks;
static const Region* regions;
static int region_count;
static uint8_t* shared;
static size_t shared_size;
static jmp_buf scheduler;
static ucontext_t nowhere;
static int current;
static bool copies_land_at_once, warps_run_alone;
static char fault[256];
static Counts counts;
static BarrierAmong barriers[16];
static bool votes, last_votes;  // at the barrier that threads wait at, and at the one before
static void (*body)();

[[noreturn]] __attribute__((noinline)) static void leave() { _longjmp(scheduler, 1); }
__attribute__((noinline)) static void pause() {
  if (!_setjmp(fibers[current].resume)) leave();
}
[[noreturn]] static void fail(const char* what) {
  if (!fault[0])
    snprintf(fault, sizeof fault, "%s (block %u,%u,%u thread %d)", what, blockIdx.x, blockIdx.y, blockIdx.z, current);
  fibers[current].state = State::done;
  leave();
}
static void run_fiber() {
  body();
  fibers[current].state = State::done;
  leave();
}
__attribute__((noinline)) static void run(int thread) {
  current = thread;
  threadIdx.x = thread;
  if (_setjmp(scheduler)) return;
  Fiber& fiber = fibers[thread];
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.start);
}

static void check_aligned(const void* address, size_t size) {
  if ((uintptr_t)address % size) fail("an access is not aligned");
}
// Addresses are not used before they are checked.
static void check_global(const void* address, size_t size) {
  check_aligned(address, size);
  for (int i = 0; i < region_count; i++)
    if ((uintptr_t)address >= regions[i].start && (uintptr_t)address + size <= regions[i].end) return;
  fail("an access is outside of all arrays");
}

static void check_shared(const void* address, size_t size) {
  check_aligned(address, size > 16 ? 16 : size);
  if ((uintptr_t)address < (uintptr_t)shared || (uintptr_t)address + size > (uintptr_t)shared + shared_size)
    fail("an access is outside of the block's shared memory");
}

// Which accesses to shared memory are in order, by vector clocks: seen[i * threads + j] is how far thread i knows of thread j.
// By words of four bytes; smaller accesses are not looked at.
struct Word { uint32_t written; int writer, copier; };
static bool looks_at_order;
static int thread_count;
static uint32_t *seen, *reads, newest;  // reads[word * threads + j]: when thread j last read it
static Word* words;

static void begin_order() {
  for (int i = 0; i < thread_count; i++)
    for (int j = 0; j < thread_count; j++) seen[i * thread_count + j] = newest + (i == j);
  newest++;
  for (size_t i = 0; i < shared_size / 4; i++) words[i].copier = -1;
}
// The threads that meet know of each other now.
template <class Which> static void put_in_order(Which which) {
  if (!looks_at_order) return;
  uint32_t most[MOST_THREADS] = {};
  for (int i = 0; i < thread_count; i++)
    for (int j = 0; which(i) && j < thread_count; j++)
      if (seen[i * thread_count + j] > most[j]) most[j] = seen[i * thread_count + j];
  for (int i = 0; i < thread_count; i++) {
    if (!which(i)) continue;
    memcpy(seen + i * thread_count, most, thread_count * 4);
    const uint32_t now = ++seen[i * thread_count + i];
    if (now > newest) newest = now;
  }
}
static void out_of_order(const char* what, size_t word, int other) {
  if (!fault[0])
    snprintf(fault, sizeof fault, "no barrier between threads %d and %d: %s at byte %zu of shared memory (block %u,%u,%u)", current, other, what, word * 4,
             blockIdx.x, blockIdx.y, blockIdx.z);
  fibers[current].state = State::done;
  leave();
}
static void check_order(const void* address, size_t size, bool writes) {
  const size_t first = ((uintptr_t)address - (uintptr_t)shared) / 4;
  if (!looks_at_order || size < 4) return;
  const uint32_t* const known = seen + current * thread_count;
  for (size_t i = first; i < first + size / 4; i++) {
    Word& word = words[i];
    uint32_t* const read = reads + i * thread_count;
    if (word.copier >= 0) out_of_order("a copy is under way", i, word.copier);
    if (word.writer != current && word.written > known[word.writer]) out_of_order(writes ? "two writes" : "a write and a read", i, word.writer);
    if (!writes) {
      read[current] = known[current];
      continue;
    }
    for (int j = 0; j < thread_count; j++)
      if (j != current && read[j] > known[j]) out_of_order("a read and a write", i, j);
    word.writer = current;
    word.written = known[current];
  }
}
static void note_copy(const void* address, size_t size, bool under_way) {
  if (!looks_at_order) return;
  if (under_way) check_order(address, size, true);
  for (size_t i = 0; i < size / 4; i++) {
    Word& word = words[((uintptr_t)address - (uintptr_t)shared) / 4 + i];
    word = {seen[current * thread_count + current], current, under_way ? current : -1};
  }
}

static void meet(const char* name) {
  Meeting& meeting = meetings[current / 32];
  if (meeting.arrived && meeting.name != name) fail("lanes of one warp are at different warp operations");
  meeting.name = name;
}
// Every lane brings `in`; the last to come computes `out` for all; nobody goes on before that.
template <class Compute> static void together(const char* name, const uint64_t* in, int ins, uint64_t* out, int outs, Compute compute) {
  counts.warp_operations++;
  meet(name);
  Meeting& meeting = meetings[current / 32];
  const int lane = current % 32;
  for (int i = 0; i < ins; i++) meeting.in[lane][i] = in[i];
  if (++meeting.arrived == 32) {
    compute(meeting);
    meeting.arrived = 0;
    const int first = current - lane;
    if (!strcmp(name, "warp_barrier")) put_in_order([&](int i) { return i / 32 == current / 32; });
    for (int i = first; i < first + 32; i++)
      if (fibers[i].state == State::at_warp_operation) fibers[i].state = State::running;
  } else {
    fibers[current].state = State::at_warp_operation;
    pause();
  }
  for (int i = 0; i < outs; i++) out[i] = meeting.out[lane][i];
}

static void copy_async(void* target, const void* source, int count, bool valid) {
  counts.async_copies++;
  check_shared(target, count);
  Fiber& fiber = fibers[current];
  Copy copy = {(uint8_t*)target, {}, count, fiber.groups};
  if (valid) {
    check_global(source, count);
    memcpy(copy.bytes, source, count);
  }
  note_copy(target, count, true);
  if (copies_land_at_once) memcpy(copy.target, copy.bytes, count);
  if (copies_land_at_once && !looks_at_order) return;
  if (fiber.copy_count == fiber.copy_room) {
    fiber.copy_room = fiber.copy_room ? 2 * fiber.copy_room : 64;
    fiber.copies = (Copy*)realloc(fiber.copies, fiber.copy_room * sizeof(Copy));
  }
  fiber.copies[fiber.copy_count++] = copy;
}
// All copies land but those of the last `groups` committed groups and of the open one.
static void land(int groups) {
  Fiber& fiber = fibers[current];
  int landed = 0;
  while (landed < fiber.copy_count && fiber.copies[landed].group < fiber.groups - groups) {
    const Copy& copy = fiber.copies[landed++];
    memcpy(copy.target, copy.bytes, copy.count);
    note_copy(copy.target, copy.count, false);
  }
  fiber.copy_count -= landed;
  memmove(fiber.copies, fiber.copies + landed, fiber.copy_count * sizeof(Copy));
}

static void come_to_barrier(int which, int threads) {
  if (which < 1 || which > 15 || threads % 32) fail("there is no such barrier");
  BarrierAmong& barrier = barriers[which];
  if (barrier.arrived && barrier.threads != threads) fail("threads of different numbers meet at one barrier");
  barrier.threads = threads;
  for (int i = current / 32 * 32; i < current / 32 * 32 + 32; i++)
    if (fibers[i].state == State::at_barrier_among && fibers[i].waits_at != which) fail("lanes of one warp are at different barriers");
  fibers[current].waits_at = which;
  if (++barrier.arrived < threads) {
    fibers[current].state = State::at_barrier_among;
    pause();
    return;
  }
  barrier.arrived = 0;
  put_in_order([&](int i) { return i == current || (fibers[i].state == State::at_barrier_among && fibers[i].waits_at == which); });
  for (int i = 0; i < MOST_THREADS; i++)
    if (fibers[i].state == State::at_barrier_among && fibers[i].waits_at == which) fibers[i].state = State::running;
}

static bool is_running(int warp, int threads) {
  for (int i = warp * 32; i < warp * 32 + 32 && i < threads; i++)
    if (fibers[i].state == State::running) return true;
  return false;
}

static void run_block(int threads, uint32_t& random) {
  for (int i = 0; i < threads; i++) {
    fibers[i].started = false;
    fibers[i].state = State::running;
    fibers[i].groups = fibers[i].copy_count = 0;
    getcontext(&fibers[i].start);
    fibers[i].start.uc_stack.ss_sp = stacks + i * STACK;
    fibers[i].start.uc_stack.ss_size = STACK;
    fibers[i].start.uc_link = &nowhere;
    makecontext(&fibers[i].start, run_fiber, 0);
  }
  for (Meeting& meeting : meetings) meeting.arrived = 0;
  for (BarrierAmong& barrier : barriers) barrier.arrived = 0;
  int order[MOST_THREADS];
  for (int i = 0; i < threads; i++) order[i] = i;
  int favourite = 0;
  for (;;) {
    for (int i = threads - 1; i > 0 && random; i--) {
      random = random * 1664525u + 1013904223u;
      const int other = (random >> 8) % (i + 1), thread = order[i];
      order[i] = order[other];
      order[other] = thread;
    }
    int ran = 0, done = 0, waiting = 0, alone = -1;
    for (int i = 0; i < threads && !fault[0]; i++) {
      const int thread = order[i];
      if (fibers[thread].state != State::running || (alone >= 0 && thread / 32 != alone)) continue;
      if (warps_run_alone) {
        if (!is_running(favourite, threads)) favourite = thread / 32;
        alone = favourite;
        if (thread / 32 != alone) continue;
      }
      run(thread);
      ran++;
    }
    if (fault[0]) return;
    for (int i = 0; i < threads; i++) {
      done += fibers[i].state == State::done;
      waiting += fibers[i].state == State::at_block_barrier;
    }
    if (done == threads) return;
    if (waiting + done == threads) {
      last_votes = votes;
      votes = false;
      put_in_order([](int i) { return fibers[i].state == State::at_block_barrier; });
      for (int i = 0; i < threads; i++)
        if (fibers[i].state == State::at_block_barrier) fibers[i].state = State::running;
    } else if (!ran) {
      snprintf(fault, sizeof fault, "deadlock: %d of %d threads at the block barrier, %d done, %d at another barrier or a warp operation that others never reach",
               waiting, threads, done, threads - waiting - done);
      return;
    }
  }
}

static void run_blocks(const unsigned* grid, int threads, uint32_t random) {
  for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
        memset(shared, 0xff, shared_size + GUARD);
        if (looks_at_order) begin_order();
        run_block(threads, random);
        for (size_t i = 0; i < GUARD && !fault[0]; i++)
          if (shared[shared_size + i] != 0xff) snprintf(fault, sizeof fault, "shared memory was written %zu bytes behind its end", i);
        if (fault[0]) return;
      }
}

static void launch(const unsigned* grid, int threads, size_t shared_bytes, uint32_t seed, void (*kernel)()) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {(unsigned)threads, 1, 1};
  body = kernel;
  fault[0] = 0;
  votes = false;
  counts = Counts();
  copies_land_at_once = seed & 1;
  warps_run_alone = seed & 2;
  looks_at_order = seed & 16;
  uint32_t random = seed;
  if (threads > MOST_THREADS) {
    snprintf(fault, sizeof fault, "a block of %d threads: at most %d are possible", threads, MOST_THREADS);
    return;
  }
  stacks = (char*)malloc(threads * STACK);
  uint8_t* const shared_block = (uint8_t*)malloc(shared_bytes + GUARD + 128);
  shared = (uint8_t*)(((uintptr_t)shared_block + 127) & ~(uintptr_t)127);
  shared_size = shared_bytes;
  thread_count = threads;
  newest = 0;
  if (looks_at_order) {
    seen = (uint32_t*)calloc((size_t)threads * threads, 4);
    reads = (uint32_t*)calloc(shared_bytes / 4 * threads, 4);
    words = (Word*)calloc(shared_bytes / 4, sizeof(Word));
  }
  run_blocks(grid, threads, random);
  if (looks_at_order) {
    free(seen);
    free(reads);
    free(words);
  }
  free(stacks);
  free(shared_block);
}
// Calls a kernel with arguments as cuLaunchKernel takes them: one pointer to each value.
template <class... Types> struct Call {
  static void (*kernel)(Types...);
  static void** values;
  template <size_t... positions> static void spread(std::index_sequence<positions...>) {
    kernel(*(std::remove_reference_t<Types>*)values[positions]...);
  }
  static void run() { spread(std::index_sequence_for<Types...>()); }
};
template <class... Types> void (*Call<Types...>::kernel)(Types...);
template <class... Types> void** Call<Types...>::values;
template <class... Types> static void start(void (*kernel)(Types...), const unsigned* grid, int threads, size_t shared_bytes, uint32_t seed, void** values) {
  Call<Types...>::kernel = kernel;
  Call<Types...>::values = values;
  launch(grid, threads, shared_bytes, seed, Call<Types...>::run);
}

// ------------------------------------------------------------------------------------------------ numbers

static float float_of_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}
// Rounds to nearest even; NaN becomes 0x7fff, as cvt.rn.bf16 has it.
static uint16_t bf16_of_float(float value) {
  if (value != value) return 0x7fff;
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
static float float_of_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value;
  if (exponent == 31) value = fraction ? NAN : INFINITY;
  else if (exponent == 0) value = ldexpf((float)fraction, -24);
  else value = ldexpf((float)(1024 + fraction), exponent - 25);
  return bits & 0x8000 ? -value : value;
}
// Rounds to nearest even; NaN becomes 0x7fff, what is too large infinity.
static uint16_t f16_of_float(float value) {
  if (value != value) return 0x7fff;
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const float size = fabsf(value);
  if (size == 0) return sign;
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  frexpf(size, &exponent);
  const int step = (exponent < -13 ? -13 : exponent) - 11;  // 2^step is the distance to the next f16
  const int steps = (int)rintf(ldexpf(size, -step));
  return sign | (uint16_t)(steps + ((step + 24) << 10));
}
static float float_of_e4m3(uint32_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  float value;
  if ((code & 127) == 127) value = NAN;
  else if (exponent == 0) value = ldexpf((float)fraction, -9);
  else value = ldexpf((float)(8 + fraction), exponent - 10);
  return code & 128 ? -value : value;
}
// The product of two bf16 numbers is exact in double; so is its sum with zero, the only addend that is used.
static uint16_t multiply_add_bf16(uint16_t a, uint16_t b, uint16_t c) {
  return bf16_of_float((float)((double)float_of_bf16(a) * float_of_bf16(b) + float_of_bf16(c)));
}

}  // namespace emulator

// A place in shared memory.
template <class T> struct PlaceInShared {
  T* pointer;
  operator T() const { emulator::check_order(pointer, sizeof(T), false); return *pointer; }
  template <class U> explicit operator U*() const { return (U*)(T)*this; }
  T operator=(T value) const { emulator::check_order(pointer, sizeof(T), true); return *pointer = value; }
  T operator=(const PlaceInShared& other) const { return *this = (T)other; }
  T operator*=(T value) const { return *this = (T)*this * value; }
  T operator+=(T value) const { return *this = (T)*this + value; }
};
// Points into shared memory; every use is checked.
template <class T> struct InShared {
  T* pointer;
  PlaceInShared<T> operator[](int index) const { emulator::check_shared(pointer + index, sizeof(T)); return {pointer + index}; }
  PlaceInShared<T> operator*() const { return (*this)[0]; }
  InShared operator+(int count) const { return {pointer + count}; }
  operator void*() const { emulator::check_shared(pointer, sizeof(T)); return pointer; }
};

#define DEVICE static inline
#define DEVICE_METHOD inline
#define KERNEL(threads) static void
#define KERNEL_RESIDENT(threads, blocks) static void
#define SHARED_MEMORY(name) uint8_t* const name = emulator::shared
#define __restrict__
template <class T> DEVICE InShared<T> at_byte(uint8_t* memory, int offset) { return {(T*)(memory + offset)}; }
DEVICE InShared<uint32_t> at_word(InShared<uint8_t> bytes) { return {(uint32_t*)bytes.pointer}; }

// The entry that Python calls; returns 0, or 1 with the fault in `message`.
#define EMULATED_KERNEL(kernel)                                                                                          \
  extern "C" int emulate(const unsigned* grid, int threads, unsigned long shared_bytes, unsigned seed, void** values,    \
                         const emulator::Region* regions, int region_count, char* message, int length, long* counts) {   \
    emulator::regions = regions;                                                                                         \
    emulator::region_count = region_count;                                                                               \
    emulator::start(kernel, grid, threads, shared_bytes, seed, values);                                                  \
    memcpy(counts, &emulator::counts, sizeof emulator::counts);                                                          \
    snprintf(message, length, "%s", emulator::fault);                                                                    \
    return emulator::fault[0] != 0;                                                                                      \
  }

DEVICE void block_barrier() {
  emulator::counts.block_barriers++;
  emulator::fibers[emulator::current].state = emulator::State::at_block_barrier;
  emulator::pause();
}
DEVICE bool block_barrier_any(bool vote) {
  emulator::votes |= vote;
  block_barrier();
  return emulator::last_votes;
}
DEVICE void barrier_among(int barrier, int threads) { emulator::come_to_barrier(barrier, threads); }
DEVICE void warp_barrier() {
  emulator::together("warp_barrier", nullptr, 0, nullptr, 0, [](emulator::Meeting&) {});
}

template <class T> DEVICE T load(const T* address) { emulator::check_global(address, sizeof(T)); return *address; }
template <class T> DEVICE void store(T* address, T value) { emulator::check_global(address, sizeof(T)); *address = value; }
template <class T> DEVICE T load_written(const T* address) { return load(address); }
DEVICE uint32_t load_once(const uint8_t* address) { return load(address); }
template <class T> DEVICE T load_once(const T* address) { return load(address); }
DEVICE void prefetch(const void* address) { emulator::check_global(address, 1); }

typedef uint8_t* SharedAddress;
DEVICE SharedAddress shared_address(const void* pointer) { return (uint8_t*)pointer; }
DEVICE void copy_async_16(void* shared, const void* global, bool valid) { emulator::copy_async(shared, global, 16, valid); }
DEVICE void copy_async_8(void* shared, const void* global, bool valid) { emulator::copy_async(shared, global, 8, valid); }
DEVICE void copy_async_4(void* shared, const void* global) { emulator::copy_async(shared, global, 4, true); }
DEVICE void copy_async_commit() { emulator::fibers[emulator::current].groups++; }
template <int groups> DEVICE void copy_async_wait() { emulator::land(groups); }

DEVICE uint32_t warp_max(uint32_t value) {
  uint64_t in[1] = {value}, out[1];
  emulator::together("warp_max", in, 1, out, 1, [](emulator::Meeting& meeting) {
    uint64_t most = 0;
    for (int i = 0; i < 32; i++) most = meeting.in[i][0] > most ? meeting.in[i][0] : most;
    for (int i = 0; i < 32; i++) meeting.out[i][0] = most;
  });
  return (uint32_t)out[0];
}
DEVICE uint32_t warp_min(uint32_t value) {
  uint64_t in[1] = {value}, out[1];
  emulator::together("warp_min", in, 1, out, 1, [](emulator::Meeting& meeting) {
    uint64_t least = ~(uint64_t)0;
    for (int i = 0; i < 32; i++) least = meeting.in[i][0] < least ? meeting.in[i][0] : least;
    for (int i = 0; i < 32; i++) meeting.out[i][0] = least;
  });
  return (uint32_t)out[0];
}
DEVICE uint32_t warp_ballot(bool vote) {
  uint64_t in[1] = {vote}, out[1];
  emulator::together("warp_ballot", in, 1, out, 1, [](emulator::Meeting& meeting) {
    uint64_t votes = 0;
    for (int i = 0; i < 32; i++) votes |= meeting.in[i][0] << i;
    for (int i = 0; i < 32; i++) meeting.out[i][0] = votes;
  });
  return (uint32_t)out[0];
}
DEVICE uint32_t warp_read(uint32_t value, int lane) {
  uint64_t in[2] = {value, (uint64_t)(lane & 31)}, out[1];
  emulator::together("warp_read", in, 2, out, 1, [](emulator::Meeting& meeting) {
    for (int i = 0; i < 32; i++) meeting.out[i][0] = meeting.in[meeting.in[i][1]][0];
  });
  return (uint32_t)out[0];
}
DEVICE float warp_read_xor(float value, int mask) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint64_t in[2] = {bits, (uint64_t)mask}, out[1];
  emulator::together("warp_read_xor", in, 2, out, 1, [](emulator::Meeting& meeting) {
    for (int i = 0; i < 32; i++) meeting.out[i][0] = meeting.in[i ^ (int)meeting.in[i][1]][0];
  });
  bits = (uint32_t)out[0];
  memcpy(&value, &bits, 4);
  return value;
}

namespace emulator {
// Lane l holds, of each matrix, two elements: of row l / 4 in columns 2 (l % 4) and the next; transposed, the other way.
static void load_matrices(uint32_t (&tile)[4], const void* row, bool transposed) {
  counts.matrix_loads++;
  check_shared(row, 16);
  check_order(row, 16, false);
  uint64_t in[2] = {(uint64_t)(uintptr_t)row, transposed}, out[4];
  together("ldmatrix", in, 2, out, 4, [](Meeting& meeting) {
    for (int lane = 0; lane < 32; lane++)
      for (int matrix = 0; matrix < 4; matrix++) {
        uint32_t pair = 0;
        for (int i = 0; i < 2; i++) {
          int line = lane / 4, column = lane % 4 * 2 + i;
          if (meeting.in[lane][1]) std::swap(line, column);
          uint16_t element;
          memcpy(&element, (const uint8_t*)(uintptr_t)meeting.in[matrix * 8 + line][0] + column * 2, 2);
          pair |= (uint32_t)element << (16 * i);
        }
        meeting.out[lane][matrix] = pair;
      }
  });
  for (int i = 0; i < 4; i++) tile[i] = (uint32_t)out[i];
}
}  // namespace emulator
DEVICE void load_matrices(uint32_t (&tile)[4], const void* row) { emulator::load_matrices(tile, row, false); }
DEVICE void load_matrices_transposed(uint32_t (&tile)[4], const void* row) { emulator::load_matrices(tile, row, true); }

DEVICE uint32_t transpose_matrix(uint32_t pair) {
  uint64_t in[1] = {pair}, out[1];
  emulator::together("transpose_matrix", in, 1, out, 1, [](emulator::Meeting& meeting) {
    uint16_t matrix[8][8];
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 2; i++) matrix[lane / 4][lane % 4 * 2 + i] = (uint16_t)(meeting.in[lane][0] >> (16 * i));
    for (int lane = 0; lane < 32; lane++)
      meeting.out[lane][0] = matrix[lane % 4 * 2][lane / 4] | (uint32_t)matrix[lane % 4 * 2 + 1][lane / 4] << 16;
  });
  return (uint32_t)out[0];
}

namespace emulator {
template <float (*number)(uint16_t)>
static void multiply_add(const char* name, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  counts.multiplications++;
  uint32_t bits[4];
  memcpy(bits, sum, 16);
  uint64_t in[8] = {a[0], a[1], a[2], a[3], b0, b1, bits[0] | (uint64_t)bits[1] << 32, bits[2] | (uint64_t)bits[3] << 32};
  uint64_t out[4];
  together(name, in, 8, out, 4, [](Meeting& meeting) {
    float left[16][16], right[16][8];
    for (int lane = 0; lane < 32; lane++) {
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
          left[group + i % 2 * 8][pair + j + i / 2 * 8] = number((uint16_t)(meeting.in[lane][i] >> (16 * j)));
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
          right[pair + j + i * 8][group] = number((uint16_t)(meeting.in[lane][4 + i] >> (16 * j)));
    }
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        uint32_t bits = (uint32_t)(meeting.in[lane][6 + i / 2] >> (32 * (i % 2)));
        float value;
        memcpy(&value, &bits, 4);
        for (int k = 0; k < 16; k++) value += left[row][k] * right[k][column];
        memcpy(&bits, &value, 4);
        meeting.out[lane][i] = bits;
      }
  });
  for (int i = 0; i < 4; i++) bits[i] = (uint32_t)out[i];
  memcpy(sum, bits, 16);
}
}  // namespace emulator
DEVICE void multiply_add_16x8x16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::multiply_add<emulator::float_of_bf16>("mma", sum, a, b0, b1);
}
DEVICE void multiply_add_16x8x16_f16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::multiply_add<emulator::float_of_f16>("mma of f16", sum, a, b0, b1);
}

template <class T> DEVICE void keep(T&) {}
// Kernels run one after another.
DEVICE void let_next_kernel_start() {}
DEVICE void wait_for_kernels_before() {}

DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t pair = low | (uint64_t)high << 32;
  uint32_t picked = 0;
  for (int i = 0; i < 4; i++) picked |= (uint32_t)(pair >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  return picked;
}
DEVICE uint32_t pack_bf16(float low, float high) {
  return emulator::bf16_of_float(low) | (uint32_t)emulator::bf16_of_float(high) << 16;
}
DEVICE uint32_t multiply_add_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  return emulator::multiply_add_bf16((uint16_t)a, (uint16_t)b, (uint16_t)c) |
         (uint32_t)emulator::multiply_add_bf16((uint16_t)(a >> 16), (uint16_t)(b >> 16), (uint16_t)(c >> 16)) << 16;
}
DEVICE uint32_t pack_f16(float low, float high) {
  return emulator::f16_of_float(low) | (uint32_t)emulator::f16_of_float(high) << 16;
}
DEVICE uint32_t multiply_f16x2(uint32_t a, uint32_t b) {  // the product of two f16 is exact in float
  return pack_f16(emulator::float_of_f16((uint16_t)a) * emulator::float_of_f16((uint16_t)b),
                  emulator::float_of_f16((uint16_t)(a >> 16)) * emulator::float_of_f16((uint16_t)(b >> 16)));
}
DEVICE uint32_t f16_of_low_e4m3(uint32_t codes) {
  return pack_f16(emulator::float_of_e4m3(codes & 255), emulator::float_of_e4m3(codes >> 8 & 255));
}
DEVICE uint32_t f16_of_high_e4m3(uint32_t codes) { return f16_of_low_e4m3(codes >> 16); }
namespace emulator {
static float without_subnormals(float value) { return fabsf(value) < 1.17549435e-38f ? copysignf(0, value) : value; }
}
DEVICE float exp2_fast(float x) { return emulator::without_subnormals(exp2f(emulator::without_subnormals(x))); }
DEVICE float log2_fast(float x) { return log2f(emulator::without_subnormals(x)); }
DEVICE float larger(float a, float b) { return a != a ? b : b != b ? a : a > b ? a : b; }  // fmaxf keeps signalling NaN
DEVICE uint32_t bits_of_float(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }
DEVICE float float_of_bits(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
DEVICE uint64_t bits_of_double(double value) { uint64_t bits; memcpy(&bits, &value, 8); return bits; }
DEVICE double double_of_bits(uint64_t bits) { double value; memcpy(&value, &bits, 8); return value; }
DEVICE float multiply_rounded(float a, float b) { return a * b; }
DEVICE double add_rounded(double a, double b) { return a + b; }
DEVICE double subtract_rounded(double a, double b) { return a - b; }
DEVICE int count_bits(uint32_t bits) { return __builtin_popcount(bits); }
DEVICE int lowest_bit(uint32_t bits) { return __builtin_ffs((int)bits) - 1; }
