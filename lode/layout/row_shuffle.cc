#include "lode/layout/row_shuffle.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "lode/kernels/kernel_table.h"

namespace lode::layout {
namespace {

constexpr std::uint64_t kStripBytes = 4 * kKiB;

/// Moves columns [at, at + size) of all rows of one expert along the cycles.
void rotate_strip(const RowShuffleInPlace& shuffle, std::byte* first, std::uint64_t row_bytes,
                  std::uint64_t size) noexcept {
  std::array<std::byte, kStripBytes> held;
  for (const std::uint32_t begin : shuffle.cycle_begins) {
    std::memcpy(held.data(), first + begin * row_bytes, size);
    std::uint32_t to = begin;
    for (std::uint32_t from = shuffle.source_of[to]; from != begin; from = shuffle.source_of[to]) {
      std::memcpy(first + to * row_bytes, first + from * row_bytes, size);
      to = from;
    }
    std::memcpy(first + to * row_bytes, held.data(), size);
  }
}

void rotate_all(const RowShuffleInPlace& shuffle, std::span<std::byte> bytes,
                std::uint64_t row_bytes, parallel::ThreadPool* pool) noexcept {
  const std::uint64_t strips = ceil_div(row_bytes, kStripBytes);
  const std::uint64_t expert_bytes = shuffle.source_of.size() * row_bytes;
  const auto task = [&](std::size_t task_idx, std::size_t) {
    const std::uint64_t at = task_idx % strips * kStripBytes;
    rotate_strip(shuffle, bytes.data() + task_idx / strips * expert_bytes + at, row_bytes,
                 std::min(kStripBytes, row_bytes - at));
  };
  const std::uint64_t num_tasks = shuffle.num_experts * strips;
  if (pool != nullptr) {
    pool->run(num_tasks, task);
    return;
  }
  for (std::uint64_t task_idx = 0; task_idx < num_tasks; ++task_idx) task(task_idx, 0);
}

Result<std::uint64_t> row_bytes_of(const std::string& thing, const tensor::TensorView& view,
                                   std::uint64_t num_experts, std::uint64_t num_rows) {
  const tensor::Shape& shape = view.shape();
  const bool shaped = shape.rank() >= 2 && shape[0] == num_experts && shape[1] == num_rows;
  if (!shaped || num_experts == 0 || view.bytes().size() % (num_experts * num_rows) != 0) {
    return Error{.code = Code::kInvalidSource,
                 .thing = thing,
                 .wanted = count_of(num_experts, "expert") + " of " + count_of(num_rows, "row"),
                 .found = tensor::to_string(shape)};
  }
  return view.bytes().size() / (num_experts * num_rows);
}

Status check_orders(const RowOrder& from, const RowOrder& to) {
  const std::uint64_t block = std::max(block_rows(from.shuffle), block_rows(to.shuffle));
  const bool by_64 = from.order == GateUpOrder::kUpGateBy64 || to.order == GateUpOrder::kUpGateBy64;
  const bool same = from.num_halves == to.num_halves && from.half_rows == to.half_rows;
  const bool whole = from.rows() % block == 0 && (!by_64 || from.half_rows % 64 == 0);
  if (same && whole && from.rows() != 0 && from.rows() <= UINT32_MAX) return {};
  return Error{.code = Code::kUnsupported,
               .thing = "order of rows",
               .wanted = same ? "rows in blocks of " + std::to_string(by_64 ? 64 : block)
                              : "the same rows in both orders",
               .found = std::to_string(from.num_halves) + " x " + std::to_string(from.half_rows) +
                        " and " + std::to_string(to.num_halves) + " x " +
                        std::to_string(to.half_rows)};
}

void find_cycles(RowShuffleInPlace& shuffle) {
  std::vector<bool> seen(shuffle.source_of.size());
  for (std::uint32_t begin = 0; begin < seen.size(); ++begin) {
    if (seen[begin] || shuffle.source_of[begin] == begin) continue;
    shuffle.cycle_begins.push_back(begin);
    for (std::uint32_t at = begin; !seen[at]; at = shuffle.source_of[at]) seen[at] = true;
  }
}

}  // namespace

void ordered_row_into(const OrderedRows& from, std::uint64_t position,
                      std::span<std::byte> out) noexcept {
  const HalfRow at = from.order.at(position);
  const std::span<const std::byte> row = from.rows.row(at);
  const std::uint64_t size = std::min<std::uint64_t>(row.size(), out.size());
  if (const formats::CodeMap* map = from.byte_maps[at.half]; map != nullptr) {
    kernels::active_or_plainest().map_codes(*map, row.data(), size, out.data());
  } else if (size != 0) {
    std::memcpy(out.data(), row.data(), size);
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(size), out.end(), from.padding);
}

void ordered_rows_into(const OrderedRows& from, std::uint64_t first_row,
                       std::span<std::byte> out) noexcept {
  for (std::uint64_t at = 0; at < out.size(); at += from.row_bytes) {
    ordered_row_into(from, first_row + at / from.row_bytes, out.subspan(at, from.row_bytes));
  }
}

Result<RowShuffleInPlace> plan_row_shuffle(const GateUpTensors& tensors, const RowOrder& from,
                                           const RowOrder& to) {
  LODE_TRY_STATUS(check_orders(from, to));
  const tensor::TensorView weight = tensors.weight.view();
  RowShuffleInPlace shuffle;
  shuffle.num_experts = weight.shape().rank() == 0 ? 0 : weight.shape()[0];
  LODE_TRY(shuffle.row_bytes[0],
           row_bytes_of("weight to shuffle", weight, shuffle.num_experts, from.rows()));
  const tensor::TensorView scale = tensors.scale.view();
  if (!scale.empty()) {
    LODE_TRY(shuffle.row_bytes[1],
             row_bytes_of("scale to shuffle", scale, shuffle.num_experts, from.rows()));
  }
  const tensor::TensorView bias = tensors.bias.view();
  if (!bias.empty()) {
    LODE_TRY(shuffle.row_bytes[2],
             row_bytes_of("bias to shuffle", bias, shuffle.num_experts, from.rows()));
  }
  for (std::uint64_t position = 0; position < to.rows(); ++position) {
    shuffle.source_of.push_back(static_cast<std::uint32_t>(from.position_of(to.at(position))));
  }
  find_cycles(shuffle);
  return shuffle;
}

GateUpTensors run(const RowShuffleInPlace& shuffle, GateUpTensors&& tensors,
                  parallel::ThreadPool* pool) noexcept {
  GateUpTensors moved = std::move(tensors);
  const std::array<tensor::Tensor*, 3> parts{&moved.weight, &moved.scale, &moved.bias};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::uint64_t row_bytes = shuffle.row_bytes[part];
    LODE_CHECK(parts[part]->view().bytes().size() ==
                   shuffle.num_experts * shuffle.source_of.size() * row_bytes,
               "a shuffle runs on the tensors that it was planned for");
    if (row_bytes != 0) rotate_all(shuffle, parts[part]->mutate().bytes(), row_bytes, pool);
  }
  return moved;
}

}  // namespace lode::layout
