// The pieces of the Marlin layouts by themselves: repack of a matrix, views, sizes.
#include "lode/targets/functions_marlin.h"

#include <algorithm>
#include <array>
#include <string>

#include "lode/base/fmt.h"
#include "lode/layout/gptq_words.h"
#include "lode/layout/marlin_scales.h"
#include "lode/layout/marlin_weights.h"
#include "lode/targets/function_lists.h"

namespace lode::targets {
namespace {

using formats::Format;
using Tensors = std::vector<NamedTensor>;

constexpr std::uint64_t kWordBytes = 4;

Error refuse(Code code, std::string thing, std::string wanted, std::string found) {
  return {.code = code,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

// Act-order: which k stands where.
Result<std::vector<std::uint32_t>> read_order(const Request& request, std::uint64_t k) {
  std::vector<std::uint32_t> order;
  const NamedTensor* const perm = find(request.inputs, "perm");
  if (perm == nullptr || perm->bytes.empty()) return order;
  const auto right = want(request.inputs, "perm", {Format::kI32}, {k});
  if (!right) return right.error();
  order.resize(k);
  std::ranges::copy(perm->bytes, std::as_writable_bytes(std::span(order)).begin());
  const auto bad = std::ranges::find_if(order, [k](std::uint32_t from) { return from >= k; });
  if (bad == order.end()) return order;
  return refuse(Code::kInvalidSource, "tensor perm", fmt::format("numbers below {}", k),
                fmt::format("{}", static_cast<std::int32_t>(*bad)));
}

// GPTQ's words as rows of codes, in act-order.
std::vector<std::byte> rows_of_words(std::span<const std::byte> words, std::uint64_t rows,
                                     std::uint32_t bits, std::span<const std::uint32_t> order) {
  std::vector<std::byte> stored(words.size());
  layout::transpose_words(words, words.size() / kWordBytes / rows, rows, stored);
  if (order.empty()) return stored;
  std::vector<std::byte> taken(stored.size());
  const std::uint64_t row_bytes = stored.size() / rows;
  for (std::uint64_t row = 0; row < rows; ++row) {
    layout::take_in_order(std::span(stored).subspan(row * row_bytes, row_bytes), bits, order,
                          std::span(taken).subspan(row * row_bytes, row_bytes));
  }
  return taken;
}

Result<Tensors> repack(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const std::uint64_t bits, params.count("num_bits"));
  LODE_TRY(const bool narrow, params.flag("is_a_8bit", false));
  LODE_TRY(const NamedTensor* const words,
           want(request.inputs, "b_q_weight", {Format::kI32}, {kAnyExtent, kAnyExtent}));
  if (bits != 4 && bits != 8) {
    return refuse(Code::kUsage, "param num_bits", "4 or 8", fmt::format("{}", bits));
  }
  const std::uint64_t rows = words->shape[1], k = words->shape[0] * 32 / bits;
  LODE_TRY_STATUS(params.agree("size_k", json::Value(k)));
  LODE_TRY_STATUS(params.agree("size_n", json::Value(rows)));
  LODE_TRY(const layout::MarlinLayout made,
           layout::MarlinLayout::make(rows, k, {static_cast<std::uint32_t>(bits), narrow}));
  LODE_TRY(const std::vector<std::uint32_t> order, read_order(request, k));
  if (narrow && !order.empty()) {
    return refuse(Code::kUnsupported, "Marlin tiles for 8-bit activations", "no act-order",
                  "tensor perm");
  }
  const layout::RowOrder one{1, rows, {}, layout::RowShuffle::kNone};
  const auto make = [&](std::span<const std::byte> from, std::uint64_t first,
                        std::span<std::byte> out) {
    const auto codes = rows_of_words(from, rows, made.shape().bits, order);
    layout::marlin_from_rows(made, one, layout::rows_of(codes, 1, codes.size() / rows), first, out);
  };
  return Tensors{
      {"marlin_qweight",
       Format::kI32,
       {k / 16, made.total_bytes() / (k / 16) / kWordBytes},
       make_units(request.way, words->bytes, made.unit_bytes(), made.total_bytes(), make)}};
}

// Rows of bytes as words first.
Result<NamedTensor> words_first(std::string name, std::span<const std::byte> bytes,
                                std::uint64_t rows) {
  const std::uint64_t row_bytes = rows == 0 ? 0 : bytes.size() / rows;
  if (row_bytes == 0 || row_bytes % kWordBytes != 0) {
    return refuse(Code::kUnsupported, fmt::format("tensor {}", name),
                  "rows of whole words of 4 bytes", fmt::format("{} bytes a row", row_bytes));
  }
  std::vector<std::byte> out(bytes.size());
  layout::transpose_words(bytes, rows, row_bytes / kWordBytes, out);
  return NamedTensor{std::move(name), Format::kI32, {row_bytes / kWordBytes, rows}, std::move(out)};
}

Result<Tensors> pack_view(const Request& request) {
  const Params params(request.params);
  Tensors made;
  for (const NamedTensor& input : request.inputs) {
    const auto right =
        want(request.inputs, input.name, {Format::kU8, Format::kE4m3}, {kAnyExtent, kAnyExtent});
    if (!right) return right.error();
    std::vector<std::byte> rows = input.bytes;
    std::uint64_t count = input.shape[0];
    if (input.name.ends_with("_k_first")) {
      count = input.shape[1];
      rows = rows_from_columns(input.bytes, input.shape[0], count);
    }
    const std::uint64_t codes_of_byte = input.dtype == Format::kU8 ? 2 : 1;
    LODE_TRY_STATUS(params.agree("n", json::Value(count)));
    LODE_TRY_STATUS(params.agree(
        "k", json::Value(input.bytes.size() / std::max<std::uint64_t>(count, 1) * codes_of_byte)));
    LODE_TRY(NamedTensor words, words_first(input.name + "_gptq", rows, count));
    made.push_back(std::move(words));
  }
  return made;
}

// Rows of numbers -> rows of numbers, I32.
Result<NamedTensor> table_of(
    const Request& request, std::string_view input, std::uint64_t columns,
    std::uint64_t made_columns,
    parallel::FunctionRef<Status(std::span<const std::int32_t>, std::span<std::int32_t>)> make) {
  LODE_TRY(const NamedTensor* const rows,
           want(request.inputs, input, {Format::kI32}, {kAnyExtent, columns}));
  LODE_TRY(NamedTensor made, make_tensor("padded", Format::kI32, {rows->shape[0], made_columns}));
  std::vector<std::int32_t> in(rows->bytes.size() / kWordBytes);
  std::vector<std::int32_t> out(made.bytes.size() / kWordBytes);
  std::ranges::copy(rows->bytes, std::as_writable_bytes(std::span(in)).begin());
  for (std::uint64_t row = 0; row < rows->shape[0]; ++row) {
    LODE_TRY_STATUS(make(std::span(in).subspan(row * columns, columns),
                         std::span(out).subspan(row * made_columns, made_columns)));
  }
  std::ranges::copy(std::as_bytes(std::span(out)), made.bytes.begin());
  return made;
}

std::uint64_t size_of(std::int32_t number) {
  return number < 0 ? 0 : static_cast<std::uint64_t>(number);  // a group of -1 is none
}

Result<Tensors> padded_sizes(const Request& request) {
  const auto make = [](std::span<const std::int32_t> in, std::span<std::int32_t> out) -> Status {
    LODE_TRY(const layout::MarlinSize size,
             layout::marlin_padded_size({size_of(in[0]), size_of(in[1])}, size_of(in[2])));
    out[0] = static_cast<std::int32_t>(size.rows);
    out[1] = static_cast<std::int32_t>(size.k);
    return {};
  };
  LODE_TRY(NamedTensor made, table_of(request, "nkg", 3, 2, make));
  return Tensors{std::move(made)};
}

Result<Tensors> padded_intermediate(const Request& request) {
  const auto make = [](std::span<const std::int32_t> in, std::span<std::int32_t> out) -> Status {
    LODE_TRY(const std::uint64_t size,
             layout::marlin_padded_intermediate(size_of(in[0]), size_of(in[1])));
    out[0] = static_cast<std::int32_t>(size);
    return {};
  };
  LODE_TRY(NamedTensor made, table_of(request, "ng", 2, 1, make));
  return Tensors{std::move(made)};
}

constexpr std::array<InputRow, 2> kRepackInputs{
    {{"b_q_weight", "I32 [K*bits/32, N]"}, {"perm", "I32 [K], act-order", false}}};
constexpr std::array<ParamRow, 4> kRepackParams{
    {{"num_bits", "4 or 8", ParamUse::kNeeded, ""},
     {"is_a_8bit", "tiles for 8-bit activations", ParamUse::kOptional, "false"},
     {"size_k", "K", ParamUse::kFact, ""},
     {"size_n", "N", ParamUse::kFact, ""}}};
constexpr std::array<InputRow, 1> kViewInputs{
    {{kAnyName, "U8 (two codes a byte) or F8_E4M3 [N, bytes]; [K, N] if named ..._k_first"}}};
constexpr std::array<ParamRow, 2> kViewParams{
    {{"n", "N", ParamUse::kFact, ""}, {"k", "K", ParamUse::kFact, ""}}};
constexpr std::array<InputRow, 1> kSizesInputs{{{"nkg", "I32 [any, 3]: N, K, group or -1"}}};
constexpr std::array<InputRow, 1> kIntermediateInputs{{{"ng", "I32 [any, 2]: N, group or -1"}}};

constexpr std::array<Function, 4> kFunctions{{
    {"marlin-repack",
     {"marlin_utils_test.marlin_weights / get_weight_perm (reference of ops.gptq_marlin_repack)",
      "marlin_utils_test.marlin_weights on rows q[perm]"},
     "codes of 4 or 8 bits from GPTQ's words into Marlin tiles",
     kRepackInputs,
     kRepackParams,
     true,
     repack},
    {"marlin-gptq-view",
     {"marlin_utils_fp8.pack_fp8_to_int32; FP4 view as in _repack_marlin_experts"},
     "rows of codes as GPTQ's words",
     kViewInputs,
     kViewParams,
     false,
     pack_view},
    {"marlin-padded-sizes",
     {"marlin_utils.marlin_padded_nk"},
     "sizes that dense layers are padded to",
     kSizesInputs,
     {},
     false,
     padded_sizes},
    {"marlin-padded-intermediate",
     {"marlin_utils.marlin_moe_padded_intermediate"},
     "the intermediate size that experts are padded to",
     kIntermediateInputs,
     {},
     false,
     padded_intermediate},
}};

}  // namespace

std::span<const Function> marlin_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
