#include "lode/targets/online.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/targets/online_refiner.h"

namespace lode::targets {
namespace {

using formats::OnlineScheme;

/// Rows and k as the checkpoint has them.
struct RealSize {
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
};

/// Bytes of an expert's part of a tensor that hold nothing of the checkpoint: to what made the
/// tensor, the zeros that blocks were filled up with before they were quantised are numbers.
std::uint64_t padding_of(const EngineTensor& tensor, const QuantisedMatrix& padded,
                         const RealSize& size) {
  const std::uint64_t bytes = tensor.expert_bytes - tensor.padding_bytes;
  const std::uint64_t of_rows = bytes / padded.rows * size.rows;
  if (bytes >= padded.codes_bytes) return tensor.expert_bytes - of_rows / padded.k * size.k;
  // Scales of blocks of rows cover some of the checkpoint each; others, and biases, have rows of
  // their own.
  const bool by_row = bytes >= padded.num_halves * padded.rows;
  return by_row ? tensor.expert_bytes - of_rows : tensor.padding_bytes;
}

class OnlinePreparer final : public Preparer {
 public:
  OnlinePreparer(std::unique_ptr<Preparer> inner, OnlineScheme scheme, const ExpertsShape& source,
                 const ExpertsShape& quantised)
      : inner_(std::move(inner)),
        scheme_(scheme),
        source_(source),
        refiner_(scheme, source, quantised, *inner_),
        tensors_(inner_->tensors()) {
    for (std::size_t idx = 0; idx < tensors_.size(); ++idx) {
      EngineTensor& tensor = tensors_[idx];
      const std::size_t made_of = inner_->kept_from(idx).value_or(idx);
      if (is_padded(quantised)) {
        tensor.padding_bytes = padding_of(tensor, inner_->tensors()[made_of].needs);
      }
      tensor.needs = refiner_.reads_of(idx);
    }
  }

  const std::vector<EngineTensor>& tensors() const noexcept override { return tensors_; }
  const Refiner* refiner() const noexcept override { return &refiner_; }
  std::uint64_t kept_numbers() const noexcept override { return inner_->kept_numbers(); }
  std::optional<std::size_t> kept_from(std::size_t tensor_idx) const noexcept override {
    return inner_->kept_from(tensor_idx);
  }
  void make(const MakeRequest& request, std::span<std::byte> out) const noexcept override {
    inner_->make(request, out);
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

  SourceWindow window_of(std::size_t tensor_idx, std::uint64_t first_unit,
                         std::uint64_t num_units) const noexcept override;

 private:
  bool is_padded(const ExpertsShape& quantised) const noexcept {
    return quantised.hidden != source_.hidden || quantised.intermediate != source_.intermediate;
  }
  std::uint64_t padding_of(const EngineTensor& tensor, const Needs& needs) const noexcept {
    if (needs.gate_up || needs.gate_up_scales || needs.gate_up_bias) {
      return targets::padding_of(tensor, refiner_.gate_up(),
                                 {source_.intermediate, source_.hidden});
    }
    if (needs.down || needs.down_scales || needs.down_bias) {
      return targets::padding_of(tensor, refiner_.down(), {source_.hidden, source_.intermediate});
    }
    return tensor.padding_bytes;
  }

  std::unique_ptr<Preparer> inner_;
  OnlineScheme scheme_;
  ExpertsShape source_;
  OnlineRefiner refiner_;
  std::vector<EngineTensor> tensors_;
};

/// Whole blocks of the scheme.
SourceWindow OnlinePreparer::window_of(std::size_t tensor_idx, std::uint64_t first_unit,
                                       std::uint64_t num_units) const noexcept {
  const formats::Encoding& encoding = formats::info(scheme_).encoding;
  const auto whole = [](Range range, std::uint64_t block) {
    if (range == Range{} || block == formats::kWhole || range.size() == 0) return range;
    return Range{range.begin / block * block, align_up(range.end, block)};
  };
  SourceWindow window = inner_->window_of(tensor_idx, first_unit, num_units);
  for (Range& rows : window.rows) rows = whole(rows, encoding.block_rows);
  window.k = whole(window.k, encoding.block_k);
  return window;
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
