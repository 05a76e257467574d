#include "lode/loader/layer_scalars.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/layout/code_counts.h"
#include "lode/loader/bind_matrix.h"
#include "lode/loader/expert_numbers.h"
#include "lode/targets/refiner.h"

namespace lode::loader {
namespace {

using formats::Encoding;
using formats::Format;

// One number in a file.
struct Number {
  std::uint32_t shard = 0;
  std::uint64_t offset_bytes = 0;
  Format format = Format::kF32;
  bool is_divisor = false;

  float as_multiplier(float stored) const noexcept { return is_divisor ? 1.0F / stored : stored; }
};

// Of a matrix: its own scale, and that of its input.
bool has_matrix_scale(const MatrixSource& matrix) {
  const Encoding& encoding = matrix.encoding;
  return encoding.tensor_scale != formats::TensorScale::kNone ||
         (encoding.has_scale && encoding.block_rows == formats::kWhole &&
          encoding.block_k == formats::kWhole);
}
Number matrix_scale(const MatrixSource& matrix) {
  if (matrix.encoding.tensor_scale == formats::TensorScale::kNone) {
    return {matrix.scales.shard, matrix.scales.offset_bytes, matrix.stored_scale_format, false};
  }
  return {matrix.matrix_scale_shard, matrix.matrix_scale_offset_bytes, Format::kF32,
          matrix.encoding.tensor_scale == formats::TensorScale::kDivisor};
}
Number input_scale(const MatrixSource& matrix) {
  return {matrix.input_scale_shard, matrix.input_scale_offset_bytes, Format::kF32,
          matrix.input_scale_is_divisor};
}

// The same matrix of each expert.
struct MatrixOfEach {
  MatrixSource ExpertSource::*matrix;
  std::string_view name;
  std::vector<float> targets::LayerScalars::*scales;
  std::vector<float> targets::LayerScalars::*input_scales;
  float targets::LayerScalars::*largest_input_scale;
};
using Scalars = targets::LayerScalars;
constexpr std::array<MatrixOfEach, 3> kMatrices{{
    {&ExpertSource::gate, "gate", &Scalars::gate_scale, &Scalars::gate_input_scale,
     &Scalars::largest_gate_up_input_scale},
    {&ExpertSource::up, "up", &Scalars::up_scale, &Scalars::up_input_scale,
     &Scalars::largest_gate_up_input_scale},
    {&ExpertSource::down, "down", &Scalars::down_scale, &Scalars::down_input_scale,
     &Scalars::largest_down_input_scale},
}};

// Many small numbers at once.
class NumberReader {
 public:
  explicit NumberReader(io::ReadEngine& engine) : engine_(engine) {}

  /// As they are stored.
  Result<std::vector<float>> read(const std::vector<Number>& numbers) {
    constexpr std::size_t kAtOnce = 64;
    std::vector<std::array<std::byte, 4>> bytes(numbers.size());
    Status first;
    std::size_t under_way = 0;
    const auto wait = [&] {
      io::ReadCompletion done = engine_.wait();
      --under_way;
      if (!done.status && first) first = std::move(done.status);
    };
    for (std::size_t i = 0; i < numbers.size() && first; ++i) {
      const std::size_t width = number_bytes(numbers[i].format);
      engine_.submit({.file_id = numbers[i].shard,
                      .offset_bytes = numbers[i].offset_bytes,
                      .out = std::span(bytes[i]).first(width)});
      if (++under_way == kAtOnce) wait();
    }
    while (under_way > 0) wait();
    LODE_TRY_STATUS(std::move(first));
    std::vector<float> values;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      values.push_back(formats::number_at(numbers[i].format, bytes[i], 0));
    }
    return values;
  }

 private:
  io::ReadEngine& engine_;
};

// Scales of one matrix of some experts, as they are stored.
struct StoredScales {
  const std::vector<Number>& places;
  const std::vector<float>& values;
  std::string_view what;
  std::string_view matrix;
  bool are_divided_by = false;  // engines do: a denormal one becomes infinite
};

Status check_scales(const StoredScales& scales, std::span<const std::uint32_t> experts,
                    const checkpoint::TensorIndex* index) {
  for (std::size_t i = 0; i < scales.values.size(); ++i) {
    const Number& place = scales.places[i];
    const float scale = place.as_multiplier(scales.values[i]);
    const bool is_number = std::isfinite(scale) && scale > 0.0F;
    if (is_number && (!scales.are_divided_by || std::isfinite(1.0F / scale))) continue;
    return Error{
        .code = Code::kInvalidSource,
        .thing = fmt::format("{} of expert {}, {}", scales.what, experts[i], scales.matrix),
        .wanted = is_number ? "a number with a finite reciprocal" : "a finite number above zero",
        .found = fmt::format("{}{}", scales.values[i], place.is_divisor ? ", a divisor" : ""),
        .where = place_in_files(place.shard, place.offset_bytes, index)};
  }
  return {};
}

Status check_all_have_input_scales(const std::vector<ExpertSource>& experts,
                                   const MatrixOfEach& matrix,
                                   const checkpoint::TensorIndex* index) {
  std::string missing;
  const Region* first = nullptr;
  std::size_t count = 0;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if ((experts[i].*matrix.matrix).has_input_scale) continue;
    if (first == nullptr) first = &(experts[i].*matrix.matrix).codes;
    if (++count <= 8) missing += fmt::format("{}{}", count == 1 ? "" : ", ", i);
  }
  if (count == 0) return {};
  return Error{
      .code = Code::kInvalidSource,
      .thing = fmt::format("input scales of {}", matrix.name),
      .wanted = "one for every expert: this target's kernels quantise activations by them",
      .found = fmt::format("none for {} of {} experts ({}{})", count, experts.size(), missing,
                           count > 8 ? ", ..." : ""),
      .where = place_in_files(first->shard, first->offset_bytes, index),
      .hint = "a target that computes with 16-bit activations, such as marlin, needs none"};
}

std::vector<std::uint32_t> all_experts(std::size_t num_experts) {
  std::vector<std::uint32_t> experts(num_experts);
  std::iota(experts.begin(), experts.end(), 0U);
  return experts;
}

class Gatherer {
 public:
  Gatherer(const std::vector<ExpertSource>& experts, const EngineBankPlan& bank,
           const LayerReading& reading)
      : experts_(experts), bank_(bank), numbers_(reading.engine), index_(reading.index) {}

  Status gather(const MatrixOfEach& matrix, Scalars& scalars) {
    if (has_matrix_scale(experts_.front().*matrix.matrix)) {
      LODE_TRY(scalars.*matrix.scales, read({matrix, "scale", matrix_scale, false}, bank_.experts));
    }
    if (!bank_.preparer->wants_input_scales()) return {};
    LODE_TRY_STATUS(check_all_have_input_scales(experts_, matrix, index_));
    LODE_TRY(const std::vector<float> all,
             read({matrix, "input scale", input_scale, true}, all_experts(experts_.size())));
    for (const std::uint32_t expert : bank_.experts) {
      (scalars.*matrix.input_scales).push_back(all[expert]);
    }
    float& largest = scalars.*matrix.largest_input_scale;
    largest = std::max(largest, *std::ranges::max_element(all));
    return {};
  }

 private:
  struct Kind {
    const MatrixOfEach& matrix;
    std::string_view what;
    Number (*place)(const MatrixSource&);
    bool are_divided_by;
  };

  // As multipliers.
  Result<std::vector<float>> read(const Kind& kind, const std::vector<std::uint32_t>& experts) {
    std::vector<Number> places;
    places.reserve(experts.size());
    for (const std::uint32_t expert : experts) {
      places.push_back(kind.place(experts_[expert].*kind.matrix.matrix));
    }
    LODE_TRY(std::vector<float> values, numbers_.read(places));
    LODE_TRY_STATUS(check_scales({places, values, kind.what, kind.matrix.name, kind.are_divided_by},
                                 experts, index_));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = places[i].as_multiplier(values[i]);
    return values;
  }

  const std::vector<ExpertSource>& experts_;
  const EngineBankPlan& bank_;
  NumberReader numbers_;
  const checkpoint::TensorIndex* index_;
};

// Engines ask for it of scales of one byte.
Status find_largest_block_scales(const std::vector<ExpertSource>& experts,
                                 const EngineBankPlan& bank, const LayerReading& reading,
                                 Scalars& scalars) {
  const auto larger = [&](float so_far, const layout::MatrixRows& rows) {
    const layout::CodeCounts counts = layout::count_codes(rows, &reading.pool);
    return std::max(so_far, layout::largest_number(counts, bank.shape.encoding.scale));
  };
  std::vector<WantedExpert> wanted;
  for (const std::uint32_t expert : bank.experts) wanted.push_back({expert, kScaleNeeds});
  return reading.reader.read_each({experts, wanted},
                                  [&](std::size_t, const targets::ExpertSource& source) -> Status {
                                    float& gate_up = scalars.largest_gate_up_block_scale;
                                    float& down = scalars.largest_down_block_scale;
                                    gate_up = larger(gate_up, source.gate_up_scales);
                                    down = larger(down, source.down_scales);
                                    return {};
                                  });
}

// What is read to measure an expert: all of it, or windows of rows of gate and up, then of down.
std::vector<WantedExpert> measured_parts(const EngineBankPlan& bank, std::uint32_t expert) {
  const std::uint64_t step = bank.measured_rows;
  if (step == 0) return {{expert, kCodeNeeds}};
  std::vector<WantedExpert> parts;
  for (const targets::Needs& needs : {kGateUpNeeds, kDownNeeds}) {
    const std::uint64_t rows = needs.gate_up ? bank.shape.intermediate : bank.shape.hidden;
    for (std::uint64_t row = 0; row < rows; row += step) {
      const Range range{row, row + step};
      parts.push_back({expert, needs, {.rows = {range, range}}});
    }
  }
  return parts;
}

// What follows from the weights themselves, where they are quantised on the way.
Status measure_experts(const std::vector<ExpertSource>& experts, const EngineBankPlan& bank,
                       const LayerReading& reading, Scalars& scalars) {
  const targets::Refiner* const refiner = bank.preparer->refiner();
  if (refiner == nullptr || !refiner->wants_measure()) return {};
  std::vector<WantedExpert> wanted;
  std::vector<std::size_t> places;
  for (std::size_t idx = 0; idx < bank.experts.size(); ++idx) {
    const std::vector<WantedExpert> parts = measured_parts(bank, bank.experts[idx]);
    wanted.insert(wanted.end(), parts.begin(), parts.end());
    places.insert(places.end(), parts.size(), idx);
  }
  LODE_TRY_STATUS(reading.reader.read_each(
      {experts, wanted}, [&](std::size_t at_idx, const targets::ExpertSource& source) -> Status {
        Status measured = refiner->measure(places[at_idx], source, scalars, &reading.pool);
        if (measured) return {};
        const std::uint32_t expert = wanted[at_idx].expert;
        return with_origin(at(fmt::format("expert {}", expert), std::move(measured).error()),
                           source, {experts[expert], bank.shape.encoding, reading.index});
      }));
  refiner->end_measure(scalars);
  return {};
}

}  // namespace

Result<Scalars> read_layer_scalars(const std::vector<ExpertSource>& experts,
                                   const EngineBankPlan& bank, const LayerReading& reading) {
  Scalars scalars;
  Gatherer gatherer(experts, bank, reading);
  for (const MatrixOfEach& matrix : kMatrices) {
    LODE_TRY_STATUS(gatherer.gather(matrix, scalars));
  }
  if (bank.preparer->wants_largest_block_scales()) {
    LODE_TRY_STATUS(find_largest_block_scales(experts, bank, reading, scalars));
  }
  LODE_TRY_STATUS(measure_experts(experts, bank, reading, scalars));
  return scalars;
}

}  // namespace lode::loader
