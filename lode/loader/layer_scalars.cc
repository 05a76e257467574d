#include "lode/loader/layer_scalars.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/layout/code_counts.h"
#include "lode/loader/bind_matrix.h"
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
      const float value = formats::number_at(numbers[i].format, bytes[i], 0);
      values.push_back(numbers[i].is_divisor ? 1.0F / value : value);
    }
    return values;
  }

 private:
  io::ReadEngine& engine_;
};

Status check_scales(std::span<const float> scales, const MatrixOfEach& matrix,
                    std::string_view what, const std::vector<std::uint32_t>* experts) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (std::isfinite(scales[i]) && scales[i] > 0.0F) continue;
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("{} of expert {}, {}", what,
                                      experts != nullptr ? (*experts)[i] : i, matrix.name),
                 .wanted = "a finite number above zero",
                 .found = fmt::format("{}", scales[i])};
  }
  return {};
}

// Engines divide by them: a denormal one becomes infinite.
Status check_reciprocals(std::span<const float> scales, const MatrixOfEach& matrix) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (std::isfinite(1.0F / scales[i])) continue;
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("input scale of expert {}, {}", i, matrix.name),
                 .wanted = "a number with a finite reciprocal",
                 .found = fmt::format("{}", scales[i])};
  }
  return {};
}

Status check_all_have_input_scales(const std::vector<ExpertSource>& experts,
                                   const MatrixOfEach& matrix) {
  std::string missing;
  std::size_t count = 0;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if ((experts[i].*matrix.matrix).has_input_scale) continue;
    if (++count <= 8) missing += fmt::format("{}{}", count == 1 ? "" : ", ", i);
  }
  if (count == 0) return {};
  return Error{
      .code = Code::kInvalidSource,
      .thing = fmt::format("input scales of {}", matrix.name),
      .wanted = "one for every expert: this target's kernels quantise activations by them",
      .found = fmt::format("none for {} of {} experts ({}{})", count, experts.size(), missing,
                           count > 8 ? ", ..." : ""),
      .hint = "a target that computes with 16-bit activations, such as marlin, needs none"};
}

class Gatherer {
 public:
  Gatherer(const std::vector<ExpertSource>& experts, const EngineBankPlan& bank,
           io::ReadEngine& engine)
      : experts_(experts), bank_(bank), numbers_(engine) {}

  Status gather(const MatrixOfEach& matrix, Scalars& scalars) {
    if (has_matrix_scale(experts_.front().*matrix.matrix)) {
      std::vector<Number> places;
      for (const std::uint32_t expert : bank_.experts) {
        places.push_back(matrix_scale(experts_[expert].*matrix.matrix));
      }
      LODE_TRY(scalars.*matrix.scales, numbers_.read(places));
      LODE_TRY_STATUS(check_scales(scalars.*matrix.scales, matrix, "scale", &bank_.experts));
    }
    if (!bank_.preparer->wants_input_scales()) return {};
    LODE_TRY_STATUS(check_all_have_input_scales(experts_, matrix));
    std::vector<Number> places;
    for (const ExpertSource& expert : experts_) {
      places.push_back(input_scale(expert.*matrix.matrix));
    }
    LODE_TRY(const std::vector<float> all, numbers_.read(places));
    LODE_TRY_STATUS(check_scales(all, matrix, "input scale", nullptr));
    LODE_TRY_STATUS(check_reciprocals(all, matrix));
    for (const std::uint32_t expert : bank_.experts) {
      (scalars.*matrix.input_scales).push_back(all[expert]);
    }
    float& largest = scalars.*matrix.largest_input_scale;
    largest = std::max(largest, *std::ranges::max_element(all));
    return {};
  }

 private:
  const std::vector<ExpertSource>& experts_;
  const EngineBankPlan& bank_;
  NumberReader numbers_;
};

// Engines ask for it of scales of one byte.
Status find_largest_block_scales(const std::vector<ExpertSource>& experts,
                                 const EngineBankPlan& bank, const LayerReading& reading,
                                 Scalars& scalars) {
  const auto larger = [&](float so_far, const layout::MatrixRows& rows) {
    const layout::CodeCounts counts = layout::count_codes(rows, &reading.pool);
    return std::max(so_far, layout::largest_number(counts, bank.shape.encoding.scale));
  };
  return reading.reader.read_each({experts, bank.experts, kScaleNeeds},
                                  [&](std::size_t, const targets::ExpertSource& source) -> Status {
                                    float& gate_up = scalars.largest_gate_up_block_scale;
                                    float& down = scalars.largest_down_block_scale;
                                    gate_up = larger(gate_up, source.gate_up_scales);
                                    down = larger(down, source.down_scales);
                                    return {};
                                  });
}

// What follows from the weights themselves, where they are quantised on the way.
Status measure_experts(const std::vector<ExpertSource>& experts, const EngineBankPlan& bank,
                       ExpertReader& reader, Scalars& scalars) {
  const targets::Refiner* const refiner = bank.preparer->refiner();
  if (refiner == nullptr || !refiner->wants_measure()) return {};
  return reader.read_each({experts, bank.experts, kCodeNeeds},
                          [&](std::size_t idx, const targets::ExpertSource& source) -> Status {
                            Status measured = refiner->measure(idx, source, scalars);
                            if (measured) return {};
                            return at(fmt::format("expert {}", bank.experts[idx]),
                                      std::move(measured).error());
                          });
}

}  // namespace

Result<Scalars> read_layer_scalars(const std::vector<ExpertSource>& experts,
                                   const EngineBankPlan& bank, const LayerReading& reading) {
  Scalars scalars;
  Gatherer gatherer(experts, bank, reading.engine);
  for (const MatrixOfEach& matrix : kMatrices) {
    LODE_TRY_STATUS(gatherer.gather(matrix, scalars));
  }
  if (bank.preparer->wants_largest_block_scales()) {
    LODE_TRY_STATUS(find_largest_block_scales(experts, bank, reading, scalars));
  }
  LODE_TRY_STATUS(measure_experts(experts, bank, reading.reader, scalars));
  return scalars;
}

}  // namespace lode::loader
