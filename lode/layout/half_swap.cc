#include "lode/layout/half_swap.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace lode::layout {
namespace {

// Two pieces and a third of their size lie in the first cache, whatever the machine.
constexpr std::uint64_t kPieceBytes = 4 * kKiB;

void exchange(std::byte* a, std::byte* b, std::uint64_t bytes) noexcept {
  std::array<std::byte, kPieceBytes> piece;
  for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) {
    const std::uint64_t size = std::min(kPieceBytes, bytes - at);
    std::memcpy(piece.data(), a + at, size);
    std::memcpy(a + at, b + at, size);
    std::memcpy(b + at, piece.data(), size);
  }
}

Error misshapen(std::string thing, std::string wanted, const tensor::TensorView& view) {
  return {.code = Code::kInvalidSource,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = tensor::to_string(view.shape()) + " of " + human_bytes(view.bytes().size())};
}

/// Bytes of a half of one expert.
Result<std::uint64_t> half_bytes(const std::string& thing, const tensor::TensorView& view,
                                 std::uint64_t num_experts, std::size_t rank) {
  const tensor::Shape& shape = view.shape();
  if (shape.rank() != rank || shape[0] != num_experts || shape[1] == 0 || shape[1] % 2 != 0) {
    return misshapen(thing,
                     std::to_string(rank) + " extents: " + count_of(num_experts, "expert") +
                         ", an even number of rows" + (rank == 3 ? ", columns" : ""),
                     view);
  }
  const std::uint64_t rows = shape[0] * shape[1];
  if (view.bytes().size() % rows != 0) return misshapen(thing, "rows of whole bytes", view);
  return view.bytes().size() / rows * (shape[1] / 2);
}

void exchange_all(std::span<std::byte> bytes, std::uint64_t half, std::uint64_t chunk,
                  parallel::ThreadPool* pool) noexcept {
  if (half == 0) return;
  const std::uint64_t chunks = ceil_div(half, chunk);
  const std::uint64_t num_tasks = bytes.size() / (2 * half) * chunks;
  const auto task = [&](std::size_t task_idx, std::size_t) {
    const std::uint64_t at = task_idx % chunks * chunk;
    std::byte* const first = bytes.data() + task_idx / chunks * 2 * half + at;
    exchange(first, first + half, std::min(chunk, half - at));
  };
  if (pool != nullptr) {
    pool->run(num_tasks, task);
    return;
  }
  for (std::uint64_t task_idx = 0; task_idx < num_tasks; ++task_idx) task(task_idx, 0);
}

}  // namespace

Result<HalfSwap> plan_half_swap(const GateUpTensors& tensors, std::uint64_t chunk_bytes) {
  if (chunk_bytes == 0 || chunk_bytes > kMaxSwapChunkBytes) {
    return Error{.code = Code::kUsage,
                 .thing = "chunk of a half swap",
                 .wanted = "1 byte to " + human_bytes(kMaxSwapChunkBytes),
                 .found = human_bytes(chunk_bytes)};
  }
  const tensor::TensorView weight = tensors.weight.view();
  if (weight.empty() || weight.shape().rank() == 0) {
    return misshapen("weight of gate and up", "[experts, rows, columns]", weight);
  }
  HalfSwap swap{weight.shape()[0], {}, chunk_bytes};
  LODE_TRY(swap.half_bytes[0], half_bytes("weight of gate and up", weight, swap.num_experts, 3));
  const tensor::TensorView scale = tensors.scale.view();
  if (!scale.empty()) {
    LODE_TRY(swap.half_bytes[1], half_bytes("scale of gate and up", scale, swap.num_experts, 3));
  }
  const tensor::TensorView bias = tensors.bias.view();
  if (!bias.empty()) {
    LODE_TRY(swap.half_bytes[2], half_bytes("bias of gate and up", bias, swap.num_experts, 2));
  }
  return swap;
}

GateUpTensors run(const HalfSwap& swap, GateUpTensors&& tensors,
                  parallel::ThreadPool* pool) noexcept {
  GateUpTensors moved = std::move(tensors);
  const std::array<tensor::Tensor*, 3> parts{&moved.weight, &moved.scale, &moved.bias};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::uint64_t half = swap.half_bytes[part];
    LODE_CHECK(parts[part]->view().bytes().size() == 2 * half * swap.num_experts,
               "a half swap runs on the tensors that it was planned for");
    if (half == 0) continue;
    exchange_all(parts[part]->mutate().bytes(), half, swap.chunk_bytes, pool);
  }
  return moved;
}

}  // namespace lode::layout
