"""Short names of kernels: what is kept, what is dropped, and that two kernels never become one."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kernel_names import Judged, corpus_names, golden, shared_corpus

from traceanalyzer.classify import cxx, mangled
from traceanalyzer.classify.names import function_path, readable, short_name, short_names


@pytest.mark.parametrize("row", golden(), ids=lambda row: row.short)
def test_golden_short_names(row: Judged) -> None:
    assert short_name(row.name) == row.short


@pytest.mark.parametrize(
    ("name", "short"),
    [
        # the functor is what tells elementwise kernels apart; return type, parameters and arrays say nothing
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>,"
            " std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<BFloat16>>",
        ),
        # a lambda is named by the function it stands in and the type it takes
        (
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
            "at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#7}::operator()() const"
            "::{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)",
            "unrolled_elementwise_kernel<direct_copy_kernel_cuda[float], 4>",
        ),
        # older demanglers repeat the return type inside
        (
            "void at::native::elementwise_kernel<128, 2, void at::native::gpu_kernel_impl_nocast<"
            "at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float>"
            " const&)::{lambda(int)#1}>(int)",
            "elementwise_kernel<128, 2, CUDAFunctor_add<float>>",
        ),
        # clang writes lambdas in quotes
        ("void foo::'lambda'(float)::operator()(float) const", "foo[float]"),
        # a function pointer as argument
        (
            "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(float silu<float>(float const&))>(int)",
            "flashinfer::act_and_mul_kernel<bf16, silu<float>>",
        ),
        # wrappers are looked into
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x4_tn_align8>(P)",
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x4_tn_align8",
        ),
        # CUTLASS 3: architecture, schedule, tile, types, layout
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>,"
            " cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<5,"
            " cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, cutlass::gemm::KernelTmaWarpSpecializedPingpong>,"
            " cute::tuple<cute::C<64>, cute::C<128>, cute::C<64> >, cutlass::bfloat16_t,"
            " cute::tuple<long, cute::C<1>, long>, cutlass::bfloat16_t, cute::tuple<cute::C<1>, long, long>,"
            " cute::TiledMMA<cute::MMA_Atom<int> > >, int> >(int)",
            "gemm::GemmUniversal<Sm90 TmaGmmaWarpSpecialized, 64x128x64, bf16, bf16, tt>",
        ),
        # a cast in front of a value, and a name that is generic without its class
        ("void moe::run<(moe::Kind)3, -2>(int)", "moe::run<3, -2>"),
        ("std::enable_if<true, void>::type internal::gemvx::kernel<int, __half, 7>(P)", "gemvx::kernel<int, half, 7>"),
        # the return type may hold brackets and comparisons of its own
        (
            "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type"
            " vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)",
            "vllm::fused_add_rms_norm_kernel<BFloat16, 8>",
        ),
        # Triton appends the specialization of every argument; a number that is the kernel's own stays
        ("_tiled_sparse_decode_kernel_0d1d2d3de4c5d6d7d8d9d10de", "_tiled_sparse_decode_kernel"),
        ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_3"),
        ("triton__0d1d2d3de", "triton__0d1d2d3de"),
        ("fused_moe_kernel_9f86d081884c7d659a2f", "fused_moe_kernel"),
        # what follows a kernel of ROCm in the code object, or of an optimizing compiler
        ("attn_fwd.kd", "attn_fwd"),
        ("void foo<3>(int) [clone .isra.0]", "foo<3>"),
        # no C++ at all
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("memcpy32_post kernel", "memcpy32_post kernel"),
        ("kernel_αβ<float>", "kernel_αβ<float>"),
        # cut off by the profiler
        ("void at::native::foo_kernel<4, at::native::Bar<fl", "foo_kernel<4, Bar<fl>>"),
        ("void at::native::foo_kernel", "foo_kernel"),
        # nothing to shorten
        ("", ""),
        ("Kernel", "Kernel"),
        ("void", "void"),
    ],
)
def test_short_name(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("name", "demangled"),
    [
        ("_Z3fooi", "foo"),
        ("_Z3fooIiEvT_", "foo<int>"),
        # substitutions: S_ is the name space, S0_ the one in it
        ("_ZN2ns5inner3fooINS_3BarENS0_3BazEEEvv", "ns::inner::foo<ns::Bar, ns::inner::Baz>"),
        ("_ZN12_GLOBAL__N_13fooILi64ELb0EEEvv", "(anonymous namespace)::foo<64, false>"),
        # a pack, a half, a negative number
        ("_Z3fooIJiDF16_EEvDpT_", "foo<int, float16>"),
        ("_Z3fooILin1EEvv", "foo<-1>"),
        # a constrained function pointer as argument, which c++filt 2.42 cannot read
        (
            "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
            "sgl_hip::activation::act_and_mul_kernel<__hip_bfloat16, silu<__hip_bfloat16>>",
        ),
        # a lambda inside a function
        ("_Z6kernelIZ3barvEUlfE_EvT_", "kernel<bar::{lambda(float)}>"),
        # what cannot be read ends the reading, the beginning stays
        ("_ZN2ns3fooIiXsr3std7is_sameIT_iEE5valueEEEvT_", "ns::foo<int, ..>"),
    ],
)
def test_mangled_names_are_read(name: str, demangled: str) -> None:
    assert readable(name) == demangled


@pytest.mark.parametrize(
    "name", ["_Z", "_ZN", "_ZN5", "_ZNE", "_Z9999999foo", "_ZTS", "__Zfoo", "_Z3", "_ZS99999999999_"]
)
def test_unreadable_mangled_names_stay_as_they_are(name: str) -> None:
    assert readable(name) == name
    assert short_name(name) == name


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (
            "void vllm::reshape_and_cache_flash_kernel<__half, unsigned char>(int)",
            "vllm::reshape_and_cache_flash_kernel",
        ),
        ("void (anonymous namespace)::act_and_mul_kernel<float>(int)", "act_and_mul_kernel"),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >(P)",
            "flash::FlashAttnFwdSm90",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bEEvv", "aiter::add_rmsnorm_quant_kernel"),
        ("some text (with brackets)", "some text (with brackets)"),
    ],
)
def test_function_path(name: str, path: str) -> None:
    assert function_path(name) == path


# -- several names


def test_names_that_do_not_collide_keep_their_own_short_form() -> None:
    names = [row.name for row in golden()]
    assert short_names(names) == {row.name: row.short for row in golden()}


@pytest.mark.parametrize(
    ("names", "shorts"),
    [
        # parameters tell them apart
        (
            ["ncclDevKernel_SendRecv(ncclDevComm*)", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"],
            ["ncclDevKernel_SendRecv [ncclDevComm]", "ncclDevKernel_SendRecv [ncclDevKernelArgsStorage]"],
        ),
        # an argument that is otherwise left out
        (
            ["void f<Add<int>, std::array<char*, 2ul> >(int)", "void f<Add<int>, std::array<char*, 3ul> >(int)"],
            ["f<Add<int>> [2ul]", "f<Add<int>> [3ul]"],
        ),
        # one setting among a hundred
        (
            [
                "Cijk_Ailk_Bljk_HB_MT64x64x32_MI16x16x1_SK0_WG64_4_1",
                "Cijk_Ailk_Bljk_HB_MT64x64x32_MI16x16x1_SK3_WG64_4_1",
            ],
            ["Cijk_Ailk_Bljk_HB_MT64x64x32_MI16x16x1 [SK0]", "Cijk_Ailk_Bljk_HB_MT64x64x32_MI16x16x1 [SK3]"],
        ),
        # only the wrapper differs
        (
            ["void cutlass::Kernel<cutlass_80_x>(P)", "void cutlass::Kernel2<cutlass_80_x>(P)"],
            ["cutlass_80_x [Kernel]", "cutlass_80_x [Kernel2]"],
        ),
        # nothing that words show: a hash of the full name
        (["foo  bar", "foo bar"], ["foo bar #8772", "foo bar #fbc1"]),
    ],
)
def test_colliding_names_are_told_apart_by_what_differs(names: list[str], shorts: list[str]) -> None:
    assert short_names(names) == dict(zip(names, shorts, strict=True))


def test_a_third_name_does_not_disturb_the_others() -> None:
    pair = ["void f<std::array<char*, 1ul> >(int)", "void f<std::array<char*, 2ul> >(int)"]
    assert short_names([*pair, "g"]).items() >= short_names(pair).items()


def test_a_name_that_quotes_the_short_form_of_another_stays_apart() -> None:
    names = ["foo  bar", "foo bar"]
    shorts = list(short_names(names).values())
    everything = short_names([*names, *shorts])
    assert len(set(everything.values())) == 4


# -- generated names

ATOMS = (
    "int",
    "float",
    "c10::BFloat16",
    "4",
    "true",
    "std::array<char*, 2ul>",
    "at::native::AddFunctor<float>",
    "char const*",
)
HEADS = (
    "void at::native::foo_kernel",
    "vllm::bar",
    "(anonymous namespace)::baz",
    "ns::kernel",
    "void cutlass::device_kernel",
)


def templates() -> st.SearchStrategy[str]:
    """Names of a few template families, alike enough to shorten to the same text."""
    arguments = st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.builds(
            lambda head, parts: f"{head}<{', '.join(parts)} >",
            st.sampled_from(("Fn", "a::Fn", "ReduceOp")),
            st.lists(inner, min_size=1, max_size=3),
        ),
        max_leaves=8,
    )
    return st.builds(
        lambda head, parts, parameters: f"{head}<{', '.join(parts)}>({', '.join(parameters)})",
        st.sampled_from(HEADS),
        st.lists(arguments, max_size=4),
        st.lists(st.sampled_from(ATOMS), max_size=2),
    )


def pieces() -> st.SearchStrategy[str]:
    """Text out of the signs that C++ names are made of, in any order."""
    signs = [
        "<",
        ">",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "::",
        ",",
        " ",
        "const",
        "operator",
        "lambda",
        "'lambda'",
        "&",
        "*",
        "#1",
    ]
    words = ["_Z", "N", "I", "E", "S_", "3foo", "Li4E", "foo", "at", "Kernel", "_0d1d2", "4ul", '"', "'", "\n", "é"]
    return st.lists(st.sampled_from(signs + words), max_size=40).map("".join)


ANY_NAME = st.one_of(
    st.text(max_size=80), templates(), pieces(), st.text(st.characters(codec="utf-8"), max_size=20).map("_Z".__add__)
)


@given(st.lists(ANY_NAME, max_size=25))
def test_no_two_names_share_a_short_name(names: list[str]) -> None:
    shorts = short_names(names)
    assert set(shorts) == set(names)
    assert len(set(shorts.values())) == len(set(names))


@given(st.lists(templates(), max_size=25), st.randoms(use_true_random=False))
def test_order_does_not_matter(names: list[str], shuffler: random.Random) -> None:
    shuffled = [*names, *names[:3]]
    shuffler.shuffle(shuffled)
    assert short_names(shuffled) == short_names(names)


@given(ANY_NAME)
def test_every_text_has_a_short_form_of_bounded_length(name: str) -> None:
    assert len(short_name(name)) <= 96
    assert "\n" not in short_name(name)
    assert isinstance(function_path(name), str)
    assert isinstance(readable(name), str)


@pytest.mark.parametrize("row", golden(), ids=lambda row: row.short)
def test_a_short_name_is_short_already(row: Judged) -> None:
    assert short_name(row.short) == row.short


@given(templates())
def test_shortening_twice_changes_nothing(name: str) -> None:
    assume("array" not in name)  # one inside a wrapper is shown at first, and dropped as an argument of its own
    once = short_name(name)
    assert short_name(once) == once


@pytest.mark.parametrize(
    "name",
    [
        "a<" * 5000,
        "a<b," * 2500,
        "(" * 10_000,
        ")" * 10_000,
        "foo<" + "int, " * 2000 + ">(int)",
        "a::" * 3300 + "b",
        "foo " * 2500,
        "{lambda(" * 1200,
        "'lambda'(" * 1100,
        "x" * 10_000,
        "_0d1d" * 2000,
        "a_" * 5000,
        "Cijk_" + "MT1x" * 2400,
        "sm80_xmma_" + "a_tilesize1x" * 800,
        "_Z1aI" + "P" * 9900,
        "_Z1aI" + "1bI" * 3300,
        "_ZN" + "1a" * 5000 + "E",
        "_Z1aI" + "".join(f"N1bIS{n}_S{n}_EE" for n in ["", *range(9)]) * 60,
    ],
    ids=lambda name: name[:12],
)
def test_hostile_names_take_time_in_proportion_to_their_length(name: str) -> None:
    started = time.process_time()
    short_name(name)
    function_path(name)
    readable(name)
    assert time.process_time() - started < 1.0  # 0.1 s on an idle machine; a quadratic pass would take minutes


def test_shared_groups_of_a_mangled_name_do_not_unfold_endlessly() -> None:
    # each template holds the one before it twice: 2 to the power of 35 words
    bombs = "".join(f"1bIS{'' if n == 0 else '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ'[n - 1]}_S_E" for n in range(30))
    name = f"_Z1aI{bombs}Evv"
    assert len(short_name(name)) <= 96
    assert len(list(cxx.leaves(mangled.read(name), limit=1000))) <= 1000


def test_the_corpus_has_no_two_kernels_of_one_short_name() -> None:
    names = corpus_names(shared_corpus())
    shorts = short_names(names)
    assert len(names) > 1000
    assert len(set(shorts.values())) == len(names)
    lengths = sorted(len(short) for short in shorts.values())
    assert lengths[len(lengths) // 2] <= 60
    assert lengths[-1] <= 140  # with what tells two of the same short name apart
