#include "lode/targets/prepare_layer.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/layout/code_counts.h"
#include "lode/parallel/thread_pool.h"
#include "lode/targets/function_values.h"
#include "lode/targets/refiner.h"

namespace lode::targets {
namespace {

constexpr std::uint64_t kLongestChunk = 7;   // units; odd sizes find what even ones hide
constexpr std::byte kNobodyWroteThis{0xA5};  // must not be left in any chunk
constexpr std::array<std::string_view, kNumLayerParts> kPartNames{
    "gate and up",         "down",        "block scales of gate and up", "block scales of down",
    "bias of gate and up", "bias of down"};

constexpr bool is_gate_up(LayerPart part) {
  return part == LayerPart::kGateUp || part == LayerPart::kGateUpScales ||
         part == LayerPart::kGateUpBias;
}

std::array<bool, kNumLayerParts> flags(const Needs& needs) {
  return {needs.gate_up,     needs.down,         needs.gate_up_scales,
          needs.down_scales, needs.gate_up_bias, needs.down_bias};
}

std::uint64_t part_row_bytes(const ExpertsShape& shape, LayerPart part) {
  const std::uint64_t k = is_gate_up(part) ? shape.hidden : shape.intermediate;
  switch (part) {
    case LayerPart::kGateUp:
    case LayerPart::kDown:
      return formats::row_bytes(shape.encoding, k);
    case LayerPart::kGateUpScales:
    case LayerPart::kDownScales:
      return formats::scale_columns(shape.encoding, k) * formats::info(shape.scale_format).bits / 8;
    case LayerPart::kGateUpBias:
    case LayerPart::kDownBias:
      return formats::info(shape.bias_format).bits / 8;
  }
  return 0;
}

std::uint64_t part_rows(const ExpertsShape& shape, LayerPart part) {
  const std::uint64_t rows = is_gate_up(part) ? shape.intermediate : shape.hidden;
  const bool scales = part == LayerPart::kGateUpScales || part == LayerPart::kDownScales;
  const std::uint64_t stored = scales ? formats::scale_rows(shape.encoding, rows) : rows;
  return is_gate_up(part) ? shape.num_halves() * stored : stored;
}

layout::MatrixRows rows_of_part(const ExpertsShape& shape, LayerPart part,
                                std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const bool in_turn = is_gate_up(part) && shape.rows_in_turn;
  return layout::rows_of(
      bytes, is_gate_up(part) ? shape.num_halves() : 1, part_row_bytes(shape, part),
      in_turn ? layout::GateUpOrder::kGateUpInTurn : layout::GateUpOrder::kGateThenUp);
}

float largest_scale(formats::Format format, std::span<const std::byte> bytes) {
  if (format != formats::Format::kE4m3) return 0.0F;
  return layout::largest_number(layout::count_codes(layout::rows_of(bytes, 1, bytes.size())),
                                format);
}

class LayerMaker {
 public:
  LayerMaker(const Preparer& preparer, const ExpertsShape& shape, LayerTensors tensors,
             LayerScalars scalars, const LayerRun& run)
      : preparer_(preparer),
        shape_(shape),
        tensors_(std::move(tensors)),
        scalars_(std::move(scalars)),
        run_(run),
        pool_(run.num_threads),
        random_(run.seed),
        kept_(shape.num_experts * preparer.kept_numbers()) {}

  Status check() const;
  Status measure();
  void find_largest_scales();
  Result<std::vector<NamedTensor>> make();

 private:
  std::span<float> kept_of(std::uint64_t expert) {
    const std::uint64_t count = preparer_.kept_numbers();
    return std::span(kept_).subspan(expert * count, count);
  }
  const EngineTensor& tensor(std::size_t tensor_idx) const {
    return preparer_.tensors()[tensor_idx];
  }
  std::optional<LayerPart> part_to_replace(const EngineTensor& tensor) const;
  PartBytes bytes_of_expert(const Needs& needs, std::uint64_t expert) const;
  Result<ExpertSource> refined(std::size_t tensor_idx, std::uint64_t expert,
                               const PartBytes& bytes);
  Status make_expert(std::size_t tensor_idx, std::uint64_t expert, const PartBytes& bytes,
                     std::span<std::byte> out);
  Status make_out_of_place(std::size_t tensor_idx, std::span<std::byte> out);
  Result<std::vector<std::byte>> make_in_place(std::size_t tensor_idx, LayerPart part);
  Status make_streamed(std::size_t tensor_idx, std::span<std::byte> out);
  Status make_chunks(std::size_t tensor_idx, std::uint64_t expert, const PartBytes& bytes,
                     std::span<std::byte> out);

  const Preparer& preparer_;
  const ExpertsShape& shape_;
  LayerTensors tensors_;
  LayerScalars scalars_;
  LayerRun run_;
  parallel::ThreadPool pool_;
  std::mt19937_64 random_;
  std::vector<std::byte> refined_;  // one expert
  std::vector<float> kept_;         // of all of them
};

// Sizes that come with a manifest may be such that a row has half a byte.
Status check_whole(const EngineTensor& tensor, std::uint64_t num_experts) {
  LODE_TRY(const std::uint64_t bytes, bytes_of(tensor.name, tensor.dtype, tensor.shape.extents()));
  const bool in_units = tensor.unit_bytes != 0 && tensor.expert_bytes % tensor.unit_bytes == 0;
  if (bytes == tensor.bytes(num_experts) && (in_units || bytes == 0)) return {};
  return Error{.code = Code::kUnsupported,
               .thing = fmt::format("tensor {}", tensor.name),
               .wanted = fmt::format("sizes that fill {}", tensor::to_string(tensor.shape)),
               .found = fmt::format("{} bytes an expert in units of {}", tensor.expert_bytes,
                                    tensor.unit_bytes)};
}

Status LayerMaker::check() const {
  for (const EngineTensor& tensor : preparer_.tensors()) {
    LODE_TRY_STATUS(check_whole(tensor, shape_.num_experts));
    const auto needs = flags(tensor.needs);
    for (std::size_t part = 0; part < kNumLayerParts; ++part) {
      const std::uint64_t wanted =
          shape_.num_experts * part_bytes(shape_, static_cast<LayerPart>(part));
      if (!needs[part] || tensors_.parts[part].size() == wanted) continue;
      return Error{.code = Code::kInvalidSource,
                   .thing = std::string(kPartNames[part]),
                   .wanted = fmt::format("{} bytes for {}", wanted, tensor.name),
                   .found = fmt::format("{} bytes", tensors_.parts[part].size())};
    }
  }
  return {};
}

Status LayerMaker::measure() {
  const Refiner* const refiner = preparer_.refiner();
  if (refiner == nullptr || !refiner->wants_measure()) return {};
  const Needs all{true, true, true, true, true, true};
  for (std::uint64_t expert = 0; expert < shape_.num_experts; ++expert) {
    const ExpertSource source = source_of(shape_, bytes_of_expert(all, expert));
    LODE_TRY_STATUS(refiner->measure(expert, source, scalars_, &pool_));
  }
  refiner->end_measure(scalars_);
  return {};
}

void LayerMaker::find_largest_scales() {
  if (!preparer_.wants_largest_block_scales()) return;
  scalars_.largest_gate_up_block_scale =
      largest_scale(shape_.scale_format, tensors_[LayerPart::kGateUpScales]);
  scalars_.largest_down_block_scale =
      largest_scale(shape_.scale_format, tensors_[LayerPart::kDownScales]);
}

// The only part that the tensor is made of, where it has the tensor's bytes and no other tensor is
// made of it.
std::optional<LayerPart> LayerMaker::part_to_replace(const EngineTensor& tensor) const {
  std::array<std::size_t, kNumLayerParts> users{};
  for (const EngineTensor& other : preparer_.tensors()) {
    const auto needs = flags(other.needs);
    for (std::size_t part = 0; part < kNumLayerParts; ++part) users[part] += needs[part] ? 1 : 0;
  }
  const auto needs = flags(tensor.needs);
  if (std::ranges::count(needs, true) != 1) return std::nullopt;
  const auto part = static_cast<std::size_t>(std::ranges::find(needs, true) - needs.begin());
  const auto found = static_cast<LayerPart>(part);
  const bool same_size = part_bytes(shape_, found) == tensor.expert_bytes;
  return users[part] == 1 && same_size ? std::optional(found) : std::nullopt;
}

// Only what the tensor needs: a preparer that reads more would fail at once.
PartBytes LayerMaker::bytes_of_expert(const Needs& needs, std::uint64_t expert) const {
  PartBytes bytes;
  const auto wanted = flags(needs);
  for (std::size_t part = 0; part < kNumLayerParts; ++part) {
    if (!wanted[part] || tensors_.parts[part].empty()) continue;
    const std::uint64_t count = part_bytes(shape_, static_cast<LayerPart>(part));
    bytes[part] = std::span(tensors_.parts[part]).subspan(expert * count, count);
  }
  return bytes;
}

Result<ExpertSource> LayerMaker::refined(std::size_t tensor_idx, std::uint64_t expert,
                                         const PartBytes& bytes) {
  const ExpertSource source = source_of(shape_, bytes);
  const Refiner* const refiner = preparer_.refiner();
  if (refiner == nullptr) return source;
  refined_.assign(refiner->bytes(tensor_idx, {}), kNobodyWroteThis);
  return refiner->refine(
      {.tensor_idx = tensor_idx, .expert_idx = expert, .source = source, .scalars = scalars_},
      refined_, &pool_);
}

Status LayerMaker::make_expert(std::size_t tensor_idx, std::uint64_t expert, const PartBytes& bytes,
                               std::span<std::byte> out) {
  const EngineTensor& made = tensor(tensor_idx);
  LODE_TRY(const ExpertSource source, refined(tensor_idx, expert, bytes));
  const std::uint64_t share = ceil_div<std::uint64_t>(made.units(), pool_.num_threads());
  if (share == 0) return {};
  pool_.run(ceil_div(made.units(), share), [&](std::size_t task, std::size_t) {
    const std::uint64_t first = task * share;
    const std::uint64_t count = std::min(share, made.units() - first);
    preparer_.make({tensor_idx, expert, first, source, scalars_, kept_of(expert)},
                   out.subspan(first * made.unit_bytes, count * made.unit_bytes));
  });
  return {};
}

Status LayerMaker::make_out_of_place(std::size_t tensor_idx, std::span<std::byte> out) {
  const EngineTensor& made = tensor(tensor_idx);
  for (std::uint64_t expert = 0; expert < shape_.num_experts; ++expert) {
    LODE_TRY_STATUS(make_expert(tensor_idx, expert, bytes_of_expert(made.needs, expert),
                                out.subspan(expert * made.expert_bytes, made.expert_bytes)));
  }
  return {};
}

Result<std::vector<std::byte>> LayerMaker::make_in_place(std::size_t tensor_idx, LayerPart part) {
  const EngineTensor& made = tensor(tensor_idx);
  std::vector<std::byte> bytes = std::move(tensors_[part]);
  std::vector<std::byte> scratch(made.expert_bytes);
  PartBytes source;
  source[static_cast<std::size_t>(part)] = scratch;
  for (std::uint64_t expert = 0; expert < shape_.num_experts; ++expert) {
    const auto place = std::span(bytes).subspan(expert * made.expert_bytes, made.expert_bytes);
    std::ranges::copy(place, scratch.begin());
    LODE_TRY_STATUS(make_expert(tensor_idx, expert, source, place));
  }
  return bytes;
}

// Every chunk has a buffer of its own, as large as it is: no unit may count on its neighbours.
Status LayerMaker::make_chunks(std::size_t tensor_idx, std::uint64_t expert, const PartBytes& bytes,
                               std::span<std::byte> out) {
  const EngineTensor& made = tensor(tensor_idx);
  std::vector<std::uint64_t> begins;
  std::uniform_int_distribution<std::uint64_t> size(1, kLongestChunk);
  for (std::uint64_t unit = 0; unit < made.units(); unit += size(random_)) begins.push_back(unit);
  begins.push_back(made.units());
  LODE_TRY(const ExpertSource source, refined(tensor_idx, expert, bytes));
  pool_.run(begins.size() - 1, [&](std::size_t chunk, std::size_t) {
    const std::uint64_t count = begins[chunk + 1] - begins[chunk];
    std::vector<std::byte> buffer(count * made.unit_bytes, kNobodyWroteThis);
    preparer_.make({tensor_idx, expert, begins[chunk], source, scalars_, kept_of(expert)}, buffer);
    std::ranges::copy(buffer, out.subspan(begins[chunk] * made.unit_bytes).begin());
  });
  return {};
}

Status LayerMaker::make_streamed(std::size_t tensor_idx, std::span<std::byte> out) {
  const EngineTensor& made = tensor(tensor_idx);
  std::array<std::vector<std::byte>, kNumLayerParts> arrived;
  for (std::uint64_t expert = 0; expert < shape_.num_experts; ++expert) {
    PartBytes bytes = bytes_of_expert(made.needs, expert);
    for (std::size_t part = 0; part < kNumLayerParts; ++part) {
      arrived[part].assign(bytes[part].begin(), bytes[part].end());
      bytes[part] = arrived[part];
    }
    LODE_TRY_STATUS(make_chunks(tensor_idx, expert, bytes,
                                out.subspan(expert * made.expert_bytes, made.expert_bytes)));
  }
  return {};
}

Result<std::vector<NamedTensor>> LayerMaker::make() {
  std::vector<NamedTensor> all;
  for (std::size_t tensor_idx = 0; tensor_idx < preparer_.tensors().size(); ++tensor_idx) {
    const EngineTensor& made = tensor(tensor_idx);
    const std::span<const std::uint64_t> extents = made.shape.extents();
    const auto replaced =
        run_.way == Way::kInPlace ? part_to_replace(made) : std::optional<LayerPart>();
    if (replaced) {
      LODE_TRY(auto bytes, make_in_place(tensor_idx, *replaced));
      all.push_back({made.name, made.dtype, {extents.begin(), extents.end()}, std::move(bytes)});
      continue;
    }
    LODE_TRY(NamedTensor out, make_tensor(made.name, made.dtype, {extents.begin(), extents.end()}));
    if (run_.way == Way::kStreamed) {
      LODE_TRY_STATUS(make_streamed(tensor_idx, out.bytes));
    } else {
      LODE_TRY_STATUS(make_out_of_place(tensor_idx, out.bytes));
    }
    all.push_back(std::move(out));
  }
  return all;
}

}  // namespace

ExpertSource source_of(const ExpertsShape& shape, const PartBytes& bytes) noexcept {
  const auto rows = [&](LayerPart part) {
    return rows_of_part(shape, part, bytes[static_cast<std::size_t>(part)]);
  };
  return {.gate_up = rows(LayerPart::kGateUp),
          .down = rows(LayerPart::kDown),
          .gate_up_scales = rows(LayerPart::kGateUpScales),
          .down_scales = rows(LayerPart::kDownScales),
          .gate_up_bias = rows(LayerPart::kGateUpBias),
          .down_bias = rows(LayerPart::kDownBias)};
}

std::uint64_t part_bytes(const ExpertsShape& shape, LayerPart part) noexcept {
  return part_rows(shape, part) * part_row_bytes(shape, part);
}

Result<std::vector<NamedTensor>> prepare_layer(const Preparer& preparer, const ExpertsShape& shape,
                                               LayerTensors tensors, LayerScalars scalars,
                                               const LayerRun& run) {
  LayerMaker maker(preparer, shape, std::move(tensors), std::move(scalars), run);
  LODE_TRY_STATUS(maker.check());
  LODE_TRY_STATUS(maker.measure());
  maker.find_largest_scales();
  return maker.make();
}

}  // namespace lode::targets
