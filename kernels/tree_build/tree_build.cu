// Builds the draft tree of every request: the `budget` best prefixes by the sum of their log-probabilities, best first,
// exactly as a heap of (-score, rank path) would pop them. One block a request.
//
// The first warp does what cannot be done at once: it pops the best candidate and puts its next sibling and its first
// child in. Candidate s belongs to lane s % 32, which keeps the best of its own in registers; the best of all is found
// with four warp-wide operations, and what it needs of it is read from shared memory by all lanes. Scores are float64,
// added up in the order of the heap, and compared as integers of the same order. All threads load before and write after.
#include "device.cuh"

// One candidate, or one node of the tree.
struct Node {
  int creator;  // the node whose pop put it in: its parent where rank is 0, else the sibling before it
  int parent;
  int depth;  // 1 for children of the root
  int rank;   // of its token at that depth
};
// Rank + 1 of each depth in a byte, the first depth highest; 0 behind the end. Smaller is earlier among equal scores.
struct Path { uint32_t word[4]; };

const int LANES = 32;
const uint32_t NO_HIGH = 0;  // high word of the key of no candidate; no finite score has it

DEVICE bool is_finite(double value) { return value - value == 0; }
// Larger keys are larger scores; -0 and 0 are one.
DEVICE uint64_t key_of(double score) {
  const uint64_t bits = bits_of_double(add_rounded(score, 0.0));
  return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}
DEVICE double score_of(uint64_t key) { return double_of_bits(key >> 63 ? key & ~((uint64_t)1 << 63) : ~key); }

DEVICE Path with_rank(Path path, int depth, int rank) {
  const int word = (depth - 1) / 4, shift = 24 - (depth - 1) % 4 * 8;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (i == word) path.word[i] = path.word[i] & ~(255u << shift) | (uint32_t)(rank + 1) << shift;
  return path;
}
DEVICE bool is_before(const Path& a, const Path& b) {
  for (int i = 0; i < 4; i++)
    if (a.word[i] != b.word[i]) return a.word[i] < b.word[i];
  return false;
}

// The block's shared memory, for trees of `nodes` nodes from `depths` x `width` log-probabilities.
struct Shared {
  double* scores;   // [depths, width]
  uint64_t* keys;   // of candidates; 0: none
  Path* paths;      // of candidates
  Node* candidates;
  Node* tree;       // [nodes]; before the loop: the log-probabilities as they were read
  int* first_child;   // [nodes]
  int* next_sibling;  // [nodes]
};
DEVICE int read_bytes(int nodes, int cells) { return (max(nodes * (int)sizeof(Node), cells * 4) + 15) / 16 * 16; }
DEVICE Shared divide(uint8_t* memory, int nodes, int cells) {
  Shared all;
  all.paths = (Path*)memory;
  all.candidates = (Node*)(all.paths + nodes);
  all.tree = all.candidates + nodes;
  all.scores = (double*)((uint8_t*)all.tree + read_bytes(nodes, cells));
  all.keys = (uint64_t*)(all.scores + cells);
  all.first_child = (int*)(all.keys + nodes);
  all.next_sibling = all.first_child + nodes;
  return all;
}

// Which of a lane's candidates is best: a search over them all.
struct Best { uint32_t high, low; int slot; };
DEVICE Best best_of_lane(const Shared& shared, int lane, int candidates) {
  uint64_t best = 0;
  int slot = lane;
  for (int i = lane; i < candidates; i += LANES) {
    const uint64_t key = shared.keys[i];
    if (key > best || (key && key == best && is_before(shared.paths[i], shared.paths[slot]))) best = key, slot = i;
  }
  return {(uint32_t)(best >> 32), (uint32_t)best, slot};
}

// Lane of the best candidate of all lanes, or -1; its key is left in `high` and `low`.
DEVICE int best_lane(const Shared& shared, const Best& mine, uint32_t& high, uint32_t& low) {
  high = warp_max(mine.high);
  if (high == NO_HIGH) return -1;
  low = warp_max(mine.high == high ? mine.low : 0);
  bool equal = mine.high == high && mine.low == low;
  uint32_t lanes = warp_ballot(equal);
  if (count_bits(lanes) > 1) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t word = equal ? shared.paths[mine.slot].word[i] : 0xffffffffu;
      const uint32_t first = warp_min(word);
      equal = equal && word == first;
    }
    lanes = warp_ballot(equal);
  }
  return lowest_bit(lanes);
}

DEVICE void put(const Shared& shared, int slot, uint64_t key, const Node& node, const Path& path) {
  shared.keys[slot] = key;
  shared.candidates[slot] = node;
  shared.paths[slot] = path;
}

// The loop of the first warp. Returns how many nodes the tree has besides its root.
DEVICE int grow(const Shared& shared, int lane, int budget, int depths, int width) {
  int candidates = 0, nodes = 0;
  Best mine = {NO_HIGH, 0, lane};
  if (depths > 0 && width > 0 && is_finite(shared.scores[0])) {
    candidates = 1;
    if (lane == 0) {
      const uint64_t key = key_of(shared.scores[0]);
      put(shared, 0, key, {0, 0, 1, 0}, with_rank({{0, 0, 0, 0}}, 1, 0));
      mine = {(uint32_t)(key >> 32), (uint32_t)key, 0};
    }
  }
  warp_barrier();
  while (nodes < budget) {
    uint32_t high, low;
    const int owner = best_lane(shared, mine, high, low);
    if (owner < 0) break;
    const int slot = (int)warp_read((uint32_t)mine.slot, owner);
    const Node node = shared.candidates[slot];
    const Path path = shared.paths[slot];
    const double score = score_of((uint64_t)high << 32 | low);
    const double* const of_depth = shared.scores + (node.depth - 1) * width;
    nodes++;

    const bool sibling_exists = node.rank + 1 < width, child_exists = node.depth < depths;
    const double sibling = sibling_exists ? add_rounded(subtract_rounded(score, of_depth[node.rank]), of_depth[node.rank + 1]) : 0;
    const double child = child_exists ? add_rounded(score, of_depth[width]) : 0;
    const bool put_sibling = sibling_exists && is_finite(sibling), put_child = child_exists && is_finite(child);
    const int child_slot = put_sibling ? candidates : slot;
    if (put_sibling && put_child) candidates++;
    warp_barrier();  // all lanes have read what is overwritten now

    if (lane == 0) shared.tree[nodes] = node;
    if (lane == slot % LANES) {
      if (put_sibling)
        put(shared, slot, key_of(sibling), {nodes, node.parent, node.depth, node.rank + 1}, with_rank(path, node.depth, node.rank + 1));
      else if (!put_child)
        shared.keys[slot] = 0;
    }
    if (put_child && lane == child_slot % LANES)
      put(shared, child_slot, key_of(child), {nodes, nodes, node.depth + 1, 0}, with_rank(path, node.depth + 1, 0));
    if (lane == slot % LANES || lane == child_slot % LANES) mine = best_of_lane(shared, lane, candidates);
    warp_barrier();  // what was put is there for all lanes
  }
  return nodes;
}

// Inputs [requests, depths, ranks], of which the first `width` ranks are used; outputs [requests, budget + 1], the bits
// [requests, budget + 1, words]. Unused nodes: token and parent -1, depth 0, their own bit.
KERNEL(THREADS) tree_build(const float* __restrict__ log_probs, const int64_t* __restrict__ token_ids,
                           const int32_t* __restrict__ prefix_lengths, int32_t depths, int32_t ranks, int32_t width,
                           int32_t budget, int64_t* __restrict__ tokens, int32_t* __restrict__ parents,
                           int32_t* __restrict__ depths_out, int64_t* __restrict__ positions, int64_t* __restrict__ visible,
                           int32_t* __restrict__ first_child, int32_t* __restrict__ next_sibling, int32_t* __restrict__ counts) {
  SHARED_MEMORY(memory);
  const int thread = (int)threadIdx.x, all = budget + 1, cells = depths * width, words = (all + 63) / 64;
  const int64_t request = blockIdx.x, offset = request * all;
  const Shared shared = divide(memory, all, cells);
  log_probs += request * depths * ranks;
  token_ids += request * depths * ranks;
  int* const nodes_found = (int*)shared.keys;  // after the loop

  float* const read = (float*)shared.tree;
  for (int i = thread; i < cells; i += THREADS) {
    const int depth = i / width, rank = i - depth * width;
    copy_async_4(read + i, log_probs + depth * ranks + rank);
    if (rank % 4 == 0) prefetch(token_ids + depth * ranks + rank);
  }
  copy_async_commit();
  const int prefix = load(prefix_lengths + request);
  for (int i = thread; i < all; i += THREADS) shared.first_child[i] = shared.next_sibling[i] = -1;
  copy_async_wait<0>();
  for (int i = thread; i < cells; i += THREADS) shared.scores[i] = read[i];  // each thread converts what it copied
  block_barrier();
  if (thread < LANES) {
    const int nodes = grow(shared, thread, budget, depths, width);
    if (thread == 0) *nodes_found = nodes;
  }
  block_barrier();

  const int nodes = *nodes_found;
  for (int i = 1 + thread; i <= nodes; i += THREADS) {
    const Node node = shared.tree[i];
    (node.rank == 0 ? shared.first_child : shared.next_sibling)[node.creator] = i;
  }
  for (int i = thread; i < all; i += THREADS) {
    const bool used = i > 0 && i <= nodes;
    const Node node = used ? shared.tree[i] : Node{-1, -1, 0, 0};
    store(tokens + offset + i, used ? (int64_t)load(token_ids + (node.depth - 1) * ranks + node.rank) : (int64_t)-1);
    store(parents + offset + i, node.parent);
    store(depths_out + offset + i, node.depth);
    store(positions + offset + i, (int64_t)prefix + node.depth);
  }
  for (int i = thread; i < all * words; i += THREADS) {
    const int word = i % words;
    uint64_t bits = 0;
    for (int at = i / words; at >= 0; at = at > 0 && at <= nodes ? shared.tree[at].parent : -1)
      if (at / 64 == word) bits |= (uint64_t)1 << at % 64;
    store(visible + offset * words + i, (int64_t)bits);
  }
  if (thread == 0) store(counts + request, nodes);
  block_barrier();
  for (int i = thread; i < all; i += THREADS) {
    store(first_child + offset + i, shared.first_child[i]);
    store(next_sibling + offset + i, shared.next_sibling[i]);
  }
}
