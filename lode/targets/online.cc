#include "lode/targets/online.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/online_quantise.h"
#include "lode/kernels/kernel_table.h"
#include "lode/targets/refiner.h"

namespace lode::targets {
namespace {

using formats::OnlineRows;
using formats::OnlineScheme;
using layout::MatrixRows;

constexpr std::uint64_t kStripRows = 128;  // a task; whole blocks
constexpr std::uint64_t kAlignment = 64;

/// Gate and up, or down, as they are quantised.
struct Half {
  std::uint64_t num_halves = 1;
  std::uint64_t rows = 0;  // of each half, padded
  std::uint64_t k = 0;     // padded
  std::uint64_t codes_bytes = 0;
  std::uint64_t scales_bytes = 0;  // of all halves

  std::uint64_t row_bytes() const noexcept { return codes_bytes / num_halves / rows; }
};

Half half_of(OnlineScheme scheme, std::uint64_t num_halves, std::uint64_t rows, std::uint64_t k) {
  const formats::Encoding& encoding = formats::info(scheme).encoding;
  const bool one_scale = scheme == OnlineScheme::kTensorFp8;
  return {num_halves, rows, k, num_halves * rows * formats::row_bytes(encoding, k),
          one_scale ? 0 : num_halves * formats::scales_bytes(encoding, rows, k)};
}

/// Rows and k as the checkpoint has them.
struct RealSize {
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
};

/// Bytes of an expert's part of a tensor that hold nothing of the checkpoint: to what made the
/// tensor, the zeros that blocks were filled up with before they were quantised are numbers.
std::uint64_t padding_of(const EngineTensor& tensor, const Half& padded, const RealSize& size) {
  const std::uint64_t bytes = tensor.expert_bytes - tensor.padding_bytes;
  const std::uint64_t of_rows = bytes / padded.rows * size.rows;
  if (bytes >= padded.codes_bytes) return tensor.expert_bytes - of_rows / padded.k * size.k;
  // Scales of blocks of rows cover some of the checkpoint each; others, and biases, have rows of
  // their own.
  const bool by_row = bytes >= padded.num_halves * padded.rows;
  return by_row ? tensor.expert_bytes - of_rows : tensor.padding_bytes;
}

OnlineRows rows_of(const MatrixRows& rows, std::uint32_t half, formats::Format format) {
  const layout::RowRun& run = rows.halves[half];
  return {run.first, run.step_bytes, rows.half_rows, rows.row_bytes / 2, format};
}

/// Rows [first, first + count) of these; none if they end before.
OnlineRows part_of(const OnlineRows& rows, std::uint64_t first, std::uint64_t count) {
  OnlineRows part = rows;
  part.rows = rows.rows > first ? std::min(count, rows.rows - first) : 0;
  if (part.rows > 0) part.first += first * rows.step_bytes;
  return part;
}

void run_tasks(parallel::ThreadPool* pool, std::size_t num_tasks,
               parallel::FunctionRef<void(std::size_t task, std::size_t worker)> body) {
  if (pool != nullptr) return pool->run(num_tasks, body);
  for (std::size_t task = 0; task < num_tasks; ++task) body(task, 0);
}

/// The largest magnitude of all halves.
float amax_of(const MatrixRows& rows, formats::Format format, parallel::ThreadPool* pool) {
  // Magnitudes order like their bits.
  std::atomic<std::uint32_t> largest = 0;
  const std::uint64_t strips = ceil_div(rows.half_rows, kStripRows);
  run_tasks(pool, rows.num_halves * strips, [&](std::size_t task, std::size_t) {
    const auto half = static_cast<std::uint32_t>(task / strips);
    const OnlineRows part =
        part_of(rows_of(rows, half, format), task % strips * kStripRows, kStripRows);
    const auto found = std::bit_cast<std::uint32_t>(formats::largest_magnitude(part));
    std::uint32_t known = largest.load();
    while (found > known && !largest.compare_exchange_weak(known, found)) {
    }
  });
  return std::bit_cast<float>(largest.load());
}

Error not_finite(std::string_view matrices) {
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("weights of {}", matrices),
               .wanted = "finite numbers",
               .found = "an infinity or NaN"};
}

class OnlinePreparer final : public Preparer, public Refiner {
 public:
  OnlinePreparer(std::unique_ptr<Preparer> inner, OnlineScheme scheme, const ExpertsShape& source,
                 const ExpertsShape& quantised)
      : inner_(std::move(inner)),
        scheme_(scheme),
        source_(source),
        gate_up_(half_of(scheme, source.num_halves(), quantised.intermediate, quantised.hidden)),
        down_(half_of(scheme, 1, quantised.hidden, quantised.intermediate)),
        tensors_(inner_->tensors()) {
    // What is quantised together comes together.
    for (EngineTensor& tensor : tensors_) {
      if (is_padded(quantised)) tensor.padding_bytes = padding_of(tensor);
      tensor.needs.gate_up = tensor.needs.gate_up || tensor.needs.gate_up_scales;
      tensor.needs.down = tensor.needs.down || tensor.needs.down_scales;
      tensor.needs.gate_up_scales = false;
      tensor.needs.down_scales = false;
    }
  }

  const std::vector<EngineTensor>& tensors() const noexcept override { return tensors_; }
  const Refiner* refiner() const noexcept override { return this; }
  void make(std::size_t tensor_idx, std::uint64_t expert_idx, std::uint64_t first_unit,
            const ExpertSource& source, const LayerScalars& scalars,
            std::span<std::byte> out) const noexcept override {
    inner_->make(tensor_idx, expert_idx, first_unit, source, scalars, out);
  }

  bool may_lose(std::size_t tensor_idx) const noexcept override {
    return inner_->may_lose(tensor_idx);
  }
  void count_losses(const LossRequest& request, LossCounts& losses) const override {
    inner_->count_losses(request, losses);
  }

  formats::Encoding restored_encoding() const noexcept override {
    return inner_->restored_encoding();
  }
  void restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                     std::span<std::byte> out) const noexcept override {
    inner_->restore_codes(matrix, row, expert, out);
  }
  void restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                      std::span<std::byte> out) const noexcept override {
    inner_->restore_scales(matrix, row, expert, out);
  }
  float restore_scale(Matrix matrix, const PreparedExpert& expert) const noexcept override {
    return inner_->restore_scale(matrix, expert);
  }
  float restore_bias(Matrix matrix, std::uint64_t row,
                     const PreparedExpert& expert) const noexcept override {
    return inner_->restore_bias(matrix, row, expert);
  }

  std::uint64_t bytes() const noexcept override {
    return align_up(gate_up_.codes_bytes, kAlignment) +
           align_up(gate_up_.scales_bytes, kAlignment) + align_up(down_.codes_bytes, kAlignment) +
           align_up(down_.scales_bytes, kAlignment);
  }
  bool wants_measure() const noexcept override { return formats::info(scheme_).needs_amax; }
  Status measure(std::uint64_t expert_idx, const ExpertSource& source,
                 LayerScalars& scalars) const override;
  Result<ExpertSource> refine(std::size_t tensor_idx, const ExpertSource& source,
                              std::span<std::byte> memory,
                              parallel::ThreadPool* pool) const override;

 private:
  formats::Format format() const noexcept { return source_.encoding.element; }
  bool is_padded(const ExpertsShape& quantised) const noexcept {
    return quantised.hidden != source_.hidden || quantised.intermediate != source_.intermediate;
  }
  std::uint64_t padding_of(const EngineTensor& tensor) const noexcept {
    const Needs& needs = tensor.needs;
    if (needs.gate_up || needs.gate_up_scales || needs.gate_up_bias) {
      return targets::padding_of(tensor, gate_up_, {source_.intermediate, source_.hidden});
    }
    if (needs.down || needs.down_scales || needs.down_bias) {
      return targets::padding_of(tensor, down_, {source_.hidden, source_.intermediate});
    }
    return tensor.padding_bytes;
  }
  bool quantise(const Half& half, const MatrixRows& source, std::span<std::byte> codes,
                std::span<std::byte> scales, parallel::ThreadPool* pool) const;

  std::unique_ptr<Preparer> inner_;
  OnlineScheme scheme_;
  ExpertsShape source_;
  Half gate_up_;
  Half down_;
  std::vector<EngineTensor> tensors_;
};

/// Strips of rows, each by itself.
bool OnlinePreparer::quantise(const Half& half, const MatrixRows& source,
                              std::span<std::byte> codes, std::span<std::byte> scales,
                              parallel::ThreadPool* pool) const {
  const formats::OnlineSchemeInfo& scheme = formats::info(scheme_);
  const float amax = scheme.needs_amax ? amax_of(source, format(), pool) : 0.0F;
  const std::uint64_t strips = ceil_div(half.rows, kStripRows);
  const std::uint64_t half_codes = half.codes_bytes / half.num_halves;
  const std::uint64_t half_scales = half.scales_bytes / half.num_halves;
  const std::uint64_t strip_codes = kStripRows * half.row_bytes();
  const std::uint64_t strip_scales =
      half_scales == 0 ? 0 : formats::scales_bytes(scheme.encoding, kStripRows, half.k);
  std::atomic<bool> finite = true;
  const kernels::KernelTable& table = kernels::active_or_plainest();
  run_tasks(pool, half.num_halves * strips, [&](std::size_t task, std::size_t) {
    const std::uint64_t half_idx = task / strips;
    const std::uint64_t strip = task % strips;
    const std::uint64_t first = strip * kStripRows;
    const std::uint64_t rows = std::min(kStripRows, half.rows - first);
    const auto part = [&](std::span<std::byte> bytes, std::uint64_t of_half,
                          std::uint64_t of_strip) {
      if (bytes.empty()) return bytes;
      const std::uint64_t count = std::min(of_strip, of_half - strip * of_strip);
      return bytes.subspan(half_idx * of_half + strip * of_strip, count);
    };
    const auto from = rows_of(source, static_cast<std::uint32_t>(half_idx), format());
    if (!quantise_online(scheme_, part_of(from, first, rows), amax,
                         {.rows = rows,
                          .k = half.k,
                          .codes = part(codes, half_codes, strip_codes),
                          .scales = part(scales, half_scales, strip_scales)},
                         table.encode_piece)) {
      finite = false;
    }
  });
  return finite;
}

Status OnlinePreparer::measure(std::uint64_t expert_idx, const ExpertSource& source,
                               LayerScalars& scalars) const {
  const float gate_up = amax_of(source.gate_up, format(), nullptr);
  const float down = amax_of(source.down, format(), nullptr);
  if (!std::isfinite(gate_up)) return not_finite("gate and up");
  if (!std::isfinite(down)) return not_finite("down");
  const auto set = [&](std::vector<float>& numbers, float number) {
    numbers.resize(source_.num_experts, 1.0F);
    numbers[expert_idx] = number;
  };
  scalars.one_scale = true;
  const float both = formats::online_matrix_scale(scheme_, gate_up);
  set(scalars.gate_scale, both);
  if (source_.gated) set(scalars.up_scale, both);
  set(scalars.down_scale, formats::online_matrix_scale(scheme_, down));
  if (scheme_ != OnlineScheme::kNv4) return {};
  // NVFP4 kernels want scales of activations; the engine sets them to 1.
  set(scalars.gate_input_scale, 1.0F);
  if (source_.gated) set(scalars.up_input_scale, 1.0F);
  set(scalars.down_input_scale, 1.0F);
  scalars.largest_gate_up_input_scale = 1.0F;
  scalars.largest_down_input_scale = 1.0F;
  scalars.largest_gate_up_block_scale =
      std::max(scalars.largest_gate_up_block_scale, formats::online_largest_block_scale(gate_up));
  scalars.largest_down_block_scale =
      std::max(scalars.largest_down_block_scale, formats::online_largest_block_scale(down));
  return {};
}

Result<ExpertSource> OnlinePreparer::refine(std::size_t tensor_idx, const ExpertSource& source,
                                            std::span<std::byte> memory,
                                            parallel::ThreadPool* pool) const {
  ExpertSource refined = source;
  std::uint64_t used = 0;
  const auto take = [&](std::uint64_t bytes) {
    const std::span<std::byte> part = memory.subspan(used, bytes);
    used += align_up(bytes, kAlignment);
    return part;
  };
  const auto rows_over = [](const Half& half, std::span<const std::byte> bytes,
                            std::uint64_t row_bytes) {
    return bytes.empty()
               ? MatrixRows{}
               : layout::rows_of(bytes, static_cast<std::uint32_t>(half.num_halves), row_bytes);
  };
  const auto one = [&](const Half& half, const MatrixRows& from, bool wants_codes,
                       MatrixRows& codes, MatrixRows& scales) {
    const std::span<std::byte> code_bytes = take(wants_codes ? half.codes_bytes : 0);
    const std::span<std::byte> scale_bytes = take(half.scales_bytes);
    const formats::Encoding& encoding = formats::info(scheme_).encoding;
    codes = rows_over(half, code_bytes, half.row_bytes());
    scales = rows_over(half, scale_bytes, formats::scales_bytes(encoding, 1, half.k));
    return quantise(half, from, code_bytes, scale_bytes, pool);
  };
  const Needs& reads = tensors_[tensor_idx].needs;
  const Needs& wants = inner_->tensors()[tensor_idx].needs;
  if (reads.gate_up &&
      !one(gate_up_, source.gate_up, wants.gate_up, refined.gate_up, refined.gate_up_scales)) {
    return not_finite("gate and up");
  }
  if (reads.down && !one(down_, source.down, wants.down, refined.down, refined.down_scales)) {
    return not_finite("down");
  }
  return refined;
}

Error unknown(std::string_view found) {
  std::string names;
  for (const formats::OnlineSchemeInfo& row : formats::online_scheme_table()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  return Error{.code = Code::kUsage,
               .thing = "online quantisation",
               .wanted = std::move(names),
               .found = std::string(found)};
}

bool has_16_bits(const ExpertsShape& shape) {
  return shape.encoding == formats::kPlainBf16 || shape.encoding == formats::kPlainF16;
}

Status check_source(const ExpertsShape& shape, const formats::OnlineSchemeInfo& scheme) {
  if (!has_16_bits(shape)) {
    return Error{.code = Code::kUnsupported,
                 .thing = fmt::format("online quantisation to {}", scheme.name),
                 .wanted = "experts in bf16 or f16",
                 .found = std::string(formats::name(shape.encoding)),
                 .hint = "experts that are quantised already go to a target as they are"};
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  for (const std::uint64_t size : {shape.hidden, shape.intermediate}) {
    if (size > 0 && size <= kMost && size % scheme.k_multiple == 0) continue;
    return Error{.code = Code::kUnsupported,
                 .thing = fmt::format("size of experts to quantise to {}", scheme.name),
                 .wanted = fmt::format("a multiple of {}, at most 2^24", scheme.k_multiple),
                 .found = fmt::format("{}", size)};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Preparer>> make_online_preparer(Target target, const ExpertsShape& shape,
                                                       const Options& options) {
  const auto scheme = formats::online_scheme_by_name(options.online);
  if (!scheme) return unknown(options.online);
  const formats::OnlineSchemeInfo& row = formats::info(*scheme);
  LODE_TRY_STATUS(check_source(shape, row));
  ExpertsShape quantised = shape;
  quantised.encoding = row.encoding;
  quantised.scale_format = row.encoding.scale;
  quantised.scales_are_exponents = row.encoding.scale == formats::Format::kE8m0;
  quantised.hidden = align_up<std::uint64_t>(shape.hidden, row.padded_to);
  quantised.intermediate = align_up<std::uint64_t>(shape.intermediate, row.padded_to);
  quantised.input_scales = *scheme == OnlineScheme::kNv4;
  Options rest = options;
  rest.online.clear();
  LODE_TRY(std::unique_ptr<Preparer> inner, make_preparer(target, quantised, rest));
  if (inner->wants_input_scales() && !quantised.input_scales) {
    return Error{.code = Code::kUnsupported,
                 .thing = fmt::format("target {} for {}", name(target), row.name),
                 .wanted = "scales of the activations: its kernels quantise by them",
                 .found = "none: weights that are quantised online have no calibration",
                 .hint = "marlin computes with 16-bit activations and needs none"};
  }
  return std::unique_ptr<Preparer>(
      std::make_unique<OnlinePreparer>(std::move(inner), *scheme, shape, quantised));
}

std::vector<std::string_view> online_schemes_to(Target target, const ExpertsShape& shape) {
  std::vector<std::string_view> names;
  if (!has_16_bits(shape)) return names;
  for (const formats::OnlineSchemeInfo& row : formats::online_scheme_table()) {
    Options options;
    options.online = row.name;
    if (make_online_preparer(target, shape, options)) names.push_back(row.name);
  }
  return names;
}

}  // namespace lode::targets
