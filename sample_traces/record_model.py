"""The small MLA-like decoder that `record.py` traces, and the host code of its tree-speculative variant.

Nothing here is tuned to be a good model: weights are random, only shapes and launches matter. What each
scenario plants, and where, is said in `SCENARIOS`.
"""

from __future__ import annotations

import heapq
import random
import time
from dataclasses import dataclass, field

import record_kernels as kernels
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch.profiler import record_function

HEADS = 64  # per rank
V_HEAD = 128
VOCAB = 32_768
TREE_NODES = 9
DRAFT_DEPTH = 4
DRAFT_TOPK = 4


@dataclass(frozen=True)
class Scenario:
    """One planted case: shapes, the attention it uses, and what is wrong with it."""

    name: str
    purpose: str
    attention: str  # "sparse", "cast" or "grouped"
    batch: int
    context: int
    hidden: int = 4096
    intermediate: int = 6144  # per rank
    query_rank: int = 1536
    layers: int = 4
    topk: int = 512
    tree: bool = False
    extra_columns: int = 0  # width of the extra GEMM of rank 1
    steps: dict[str, int] = field(default_factory=lambda: {"eager": 22, "gpu-only": 32, "graph": 32})

    @property
    def tokens_per_request(self) -> int:
        return TREE_NODES if self.tree else 1

    @property
    def tokens(self) -> int:
        return self.batch * self.tokens_per_request

    @property
    def pool_rows(self) -> int:
        return self.batch * self.context + (TREE_NODES if self.tree else 0)

    @property
    def marker(self) -> str:
        return f"step[DECODE bs={self.batch} toks={self.tokens}]"


def _mask_scenario(label: str, context: int) -> Scenario:
    return Scenario(
        name=f"mask-{label}",
        purpose=f"host code builds an O(context) tree mask in every step; context {context} tokens",
        attention="grouped",
        batch=1,
        context=context,
        hidden=7168,
        intermediate=24_576,
        tree=True,
    )


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="sparse",
            purpose="_tiled_sparse_decode_kernel: 64 blocks, one a head, each walks its top-k serially; dominates",
            attention="sparse",
            batch=1,
            context=65_536,
        ),
        Scenario(
            name="cast",
            purpose="every layer casts the whole FP8 pool (495,000 x 576) to BF16 and reads 4,096 rows of it",
            attention="cast",
            batch=8,
            context=61_875,
            hidden=2048,
            intermediate=4096,
            query_rank=768,
        ),
        _mask_scenario("4k", 4 * 1024),
        _mask_scenario("16k", 16 * 1024),
        _mask_scenario("64k", 64 * 1024),
        Scenario(
            name="straggler",
            purpose="rank 1 runs one more GEMM in every layer; rank 0 waits in the all-reduce behind it",
            attention="grouped",
            batch=512,
            context=1024,
            topk=256,
            extra_columns=36_864,
        ),
        Scenario(
            name="healthy",
            purpose="none of the planted flaws: filled kernels, host ahead of the GPU, equal ranks",
            attention="grouped",
            batch=1024,
            context=1024,
            intermediate=12_288,
            topk=256,
        ),
    )
}


class _Weights:
    """Seeded random BF16 matrices; sharded ones differ by rank, replicated ones do not."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self._device = device
        self._shared = torch.Generator(device).manual_seed(1)
        self._sharded = torch.Generator(device).manual_seed(100 + rank)

    def _matrix(self, generator: torch.Generator, *shape: int) -> torch.Tensor:
        scale = shape[-2] ** -0.5
        values = torch.randn(*shape, generator=generator, device=self._device, dtype=torch.bfloat16)
        return values.mul_(scale)

    def replicated(self, *shape: int) -> torch.Tensor:
        return self._matrix(self._shared, *shape)

    def sharded(self, *shape: int) -> torch.Tensor:
        return self._matrix(self._sharded, *shape)

    def pool(self, rows: int) -> torch.Tensor:
        shape = (rows, kernels.KEY)
        values = torch.randn(*shape, generator=self._shared, device=self._device, dtype=torch.bfloat16)
        return values.to(torch.float8_e4m3fn)


class Layer:
    """Attention and MLP of one decoder layer, an all-reduce behind each."""

    def __init__(self, scenario: Scenario, weights: _Weights, rank: int, device: torch.device) -> None:
        s = scenario
        self.scenario = s
        self.norm_attention = torch.ones(s.hidden, dtype=torch.bfloat16, device=device)
        self.norm_mlp = torch.ones(s.hidden, dtype=torch.bfloat16, device=device)
        self.w_qkv_a = weights.replicated(s.hidden, s.query_rank + kernels.KEY)
        # The softmax scale 1/sqrt(192) is folded in here.
        self.w_q_b = weights.sharded(s.query_rank, HEADS * kernels.KEY).mul_(192**-0.5)
        self.w_value = weights.sharded(HEADS, kernels.LATENT, V_HEAD)
        self.w_out = weights.sharded(HEADS * V_HEAD, s.hidden)
        self.w_gate_up = weights.sharded(s.hidden, 2 * s.intermediate)
        self.w_down = weights.sharded(s.intermediate, s.hidden)
        self.w_extra = weights.sharded(s.hidden, s.extra_columns) if s.extra_columns and rank == 1 else None
        self.pool = weights.pool(s.pool_rows)
        self.pool_bytes = self.pool.view(torch.uint8)

    def __call__(self, x: torch.Tensor, step: StepInputs) -> torch.Tensor:
        x = x + self._attention(F.rms_norm(x, x.shape[-1:], self.norm_attention), step)
        return x + self._mlp(F.rms_norm(x, x.shape[-1:], self.norm_mlp))

    def _attention(self, hidden: torch.Tensor, step: StepInputs) -> torch.Tensor:
        rank = self.scenario.query_rank
        qkv_a = torch.mm(hidden, self.w_qkv_a)
        query = torch.mm(qkv_a[:, :rank], self.w_q_b).view(-1, HEADS, kernels.KEY)
        new_rows = qkv_a[:, rank:].to(torch.float8_e4m3fn)
        self.pool_bytes.index_copy_(0, step.write_slots, new_rows.view(torch.uint8))
        latent = self._attend(query, step)
        value = torch.bmm(latent.transpose(0, 1), self.w_value)
        out = torch.mm(value.transpose(0, 1).reshape(-1, HEADS * V_HEAD), self.w_out)
        dist.all_reduce(out)
        return out

    def _attend(self, query: torch.Tensor, step: StepInputs) -> torch.Tensor:
        if self.scenario.attention == "sparse":
            return kernels.sparse_decode(query, self.pool, step.read_slots)
        if self.scenario.attention == "cast":
            return self._attend_after_cast(query, step)
        return kernels.grouped_decode(
            query, self.pool, step.read_slots, step.tree_mask, self.scenario.tokens_per_request
        )

    def _attend_after_cast(self, query: torch.Tensor, step: StepInputs) -> torch.Tensor:
        pool = self.pool.to(torch.bfloat16)  # the planted flaw: every row is converted, few are read
        rows = torch.index_select(pool, 0, step.read_slots.view(-1)).view(*step.read_slots.shape, kernels.KEY)
        weights = torch.softmax(torch.bmm(query, rows.transpose(1, 2)), dim=-1)
        return torch.bmm(weights, rows[..., : kernels.LATENT])

    def _mlp(self, hidden: torch.Tensor) -> torch.Tensor:
        gate_up = torch.mm(hidden, self.w_gate_up)
        if self.w_extra is not None:
            torch.mm(hidden, self.w_extra)  # the planted straggler: only rank 1 has it; the result is dropped
        out = torch.mm(kernels.silu_and_mul(gate_up), self.w_down)
        dist.all_reduce(out)
        return out


@dataclass
class StepInputs:
    """Device tensors a step reads and writes in place, so that a captured graph can be replayed on them."""

    token_ids: torch.Tensor  # [tokens]
    next_ids: torch.Tensor  # [tokens]; the same tensor as token_ids where each step feeds the next
    write_slots: torch.Tensor  # [tokens], pool row of each token's own key
    read_slots: torch.Tensor  # [batch, topk], pool rows attended to
    tree_mask: torch.Tensor | None  # [nodes, context + nodes], one byte a key


def _make_inputs(scenario: Scenario, device: torch.device) -> StepInputs:
    s = scenario
    generator = torch.Generator(device).manual_seed(7)
    tree = TREE_NODES if s.tree else 0
    scores = torch.rand(s.batch, s.context, generator=generator, device=device)
    positions = scores.topk(s.topk - tree, dim=1).indices.sort(dim=1).values
    base = torch.arange(s.batch, device=device)[:, None] * s.context
    read = positions + base
    write = base.view(-1) + s.context - 1
    if s.tree:
        write = s.context + torch.arange(tree, device=device)
        read = torch.cat([read, write[None, :]], dim=1)
    token_ids = torch.arange(s.tokens, device=device) % VOCAB
    return StepInputs(
        token_ids=token_ids,
        next_ids=torch.zeros_like(token_ids) if s.tree else token_ids,
        write_slots=write,
        read_slots=read.to(torch.int64 if s.attention == "cast" else torch.int32).contiguous(),
        tree_mask=torch.zeros(tree, s.context + tree, dtype=torch.bool, device=device) if s.tree else None,
    )


class Decoder:
    """The model and its buffers: `prepare` is the host's part of a step, `forward` the launches."""

    def __init__(self, scenario: Scenario, rank: int, device: torch.device) -> None:
        weights = _Weights(rank, device)
        self.scenario = scenario
        self.inputs = _make_inputs(scenario, device)
        self.embedding = weights.replicated(VOCAB, scenario.hidden)
        self.layers = [Layer(scenario, weights, rank, device) for _ in range(scenario.layers)]
        self.norm = torch.ones(scenario.hidden, dtype=torch.bfloat16, device=device)
        self.lm_head = weights.replicated(scenario.hidden, VOCAB)
        # Two buffers, for the host may read one step's tokens while the next step writes its own.
        self.host_tokens = torch.zeros(2, scenario.tokens, dtype=torch.int64).pin_memory()
        self.drafter = TreeDrafter(scenario, self.inputs) if scenario.tree else None

    def prepare(self, step: int) -> None:
        """Host work before the launches: nothing, or the draft tree and its mask."""
        if self.drafter is not None:
            self.drafter.prepare(int(self.host_tokens[(step - 1) % 2, 0]))

    def forward(self) -> None:
        x = F.embedding(self.inputs.token_ids, self.embedding)
        for layer in self.layers:
            x = layer(x, self.inputs)
        logits = torch.mm(F.rms_norm(x, x.shape[-1:], self.norm), self.lm_head)
        torch.argmax(logits, dim=-1, out=self.inputs.next_ids)

    def fetch_tokens(self, step: int) -> None:
        self.host_tokens[step % 2].copy_(self.inputs.next_ids, non_blocking=True)


# --- host code of tree-speculative decoding ---


@dataclass(frozen=True)
class DraftTree:
    tokens: list[int]
    visible: list[list[bool]]  # [node][node]: a node sees itself and its ancestors


def build_draft_tree(root_token: int, log_probs: list[list[float]]) -> DraftTree:
    """Best-first tree of the likeliest token paths: the innocent suspect, for it never sees the context."""
    tokens = [root_token]
    visible = [[True] + [False] * (TREE_NODES - 1)]
    # Entries: (-path log-probability, path of ranks, parent node, log-probability of the parent's path).
    frontier: list[tuple[float, tuple[int, ...], int, float]] = [(-log_probs[0][0], (0,), 0, 0.0)]
    while frontier and len(tokens) < TREE_NODES:
        cost, path, parent, parent_score = heapq.heappop(frontier)
        node = len(tokens)
        tokens.append((tokens[parent] * 31 + 17 * path[-1] + len(path)) % VOCAB)
        row = list(visible[parent])
        row[node] = True
        visible.append(row)
        depth, rank = len(path), path[-1]
        if rank + 1 < DRAFT_TOPK:
            sibling = parent_score + log_probs[depth - 1][rank + 1]
            heapq.heappush(frontier, (-sibling, (*path[:-1], rank + 1), parent, parent_score))
        if depth < DRAFT_DEPTH:
            heapq.heappush(frontier, (cost - log_probs[depth][0], (*path, 0), node, -cost))
    return DraftTree(tokens, visible)


def build_tree_mask(visible: list[list[bool]], prefix: int) -> tuple[torch.Tensor, list[int]]:
    """The planted flaw: each node's row over the whole prefix is built on the host, walked as Python objects.

    Returns the mask [nodes, prefix + nodes] and each node's last visible key.
    """
    seen = torch.ones((len(visible), prefix), dtype=torch.bool)
    mask = torch.cat([seen, torch.tensor(visible, dtype=torch.bool)], dim=1)
    last_key = []
    for row in mask:
        values = row.tolist()
        values.reverse()
        last_key.append(len(values) - 1 - values.index(True))
    return mask, last_key


class TreeDrafter:
    """Host side of a verify step; keeps how long its two parts took (host clock, ns)."""

    def __init__(self, scenario: Scenario, inputs: StepInputs) -> None:
        assert inputs.tree_mask is not None
        device = inputs.token_ids.device
        self._inputs = inputs
        self._device_mask = inputs.tree_mask
        self._prefix_lens = torch.tensor([scenario.context], device=device)
        self._pinned_tokens = torch.zeros(TREE_NODES, dtype=torch.int64).pin_memory()
        self._pinned_mask = torch.zeros(inputs.tree_mask.shape, dtype=torch.bool).pin_memory()
        source = random.Random(3)
        self._log_probs = [
            sorted((-source.expovariate(1.0) - 0.1 for _ in range(DRAFT_TOPK)), reverse=True)
            for _ in range(DRAFT_DEPTH)
        ]
        self.tree_ns: list[int] = []
        self.mask_ns: list[int] = []

    def prepare(self, root_token: int) -> None:
        started = time.perf_counter_ns()
        with record_function("build_draft_tree"):
            tree = build_draft_tree(root_token, self._log_probs)
        drafted = time.perf_counter_ns()
        with record_function("build_tree_mask"):
            prefix = int(self._prefix_lens.tolist()[0])  # waits for the device, as such code does
            mask, last_key = build_tree_mask(tree.visible, prefix)
            if min(last_key) < prefix:
                raise RuntimeError("a draft node does not see itself")
            self._pinned_mask.copy_(mask)
        masked = time.perf_counter_ns()
        self._pinned_tokens.copy_(torch.tensor(tree.tokens))
        self._inputs.token_ids.copy_(self._pinned_tokens, non_blocking=True)
        self._device_mask.copy_(self._pinned_mask, non_blocking=True)
        self.tree_ns.append(drafted - started)
        self.mask_ns.append(masked - drafted)
