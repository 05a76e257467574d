#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/formats/online_quantise.h"
#include "lode/targets/preparer.h"
#include "lode/targets/refiner.h"

namespace lode::targets {

/// Gate and up, or down, as they are quantised.
struct QuantisedMatrix {
  std::uint64_t num_halves = 1;
  std::uint64_t rows = 0;  // of each half, padded
  std::uint64_t k = 0;     // padded
  std::uint64_t codes_bytes = 0;
  std::uint64_t scales_bytes = 0;  // of all halves

  std::uint64_t row_bytes() const noexcept { return codes_bytes / num_halves / rows; }
};

/// Quantises experts of 16-bit weights by a scheme, for the tensors of a preparer.
/// Source: weight_layouts 3.5.
class OnlineRefiner final : public Refiner {
 public:
  static constexpr std::uint64_t kStripRows = 128;  // a task; whole blocks

  /// `source` as the checkpoint has it, `quantised` padded; `inner` makes tensors of what comes
  /// out, and outlives this.
  OnlineRefiner(formats::OnlineScheme scheme, const ExpertsShape& source,
                const ExpertsShape& quantised, const Preparer& inner);

  const QuantisedMatrix& gate_up() const noexcept { return gate_up_; }
  const QuantisedMatrix& down() const noexcept { return down_; }
  /// What of an expert becomes the tensor.
  Needs reads_of(std::size_t tensor_idx) const noexcept;

  std::uint64_t bytes(std::size_t tensor_idx, const SourceWindow& window) const noexcept override;
  bool wants_scales_first(std::size_t tensor_idx,
                          const SourceWindow& window) const noexcept override;
  std::uint64_t window_rows() const noexcept override { return kStripRows; }
  bool wants_measure() const noexcept override { return formats::info(scheme_).needs_amax; }
  Status measure(std::uint64_t expert_idx, const ExpertSource& source, LayerScalars& scalars,
                 parallel::ThreadPool* pool) const override;
  void end_measure(LayerScalars& scalars) const override;
  Status refine_scales(const RefineRequest& request, std::span<std::byte> memory,
                       parallel::ThreadPool* pool) const override;
  Result<ExpertSource> refine(const RefineRequest& request, std::span<std::byte> memory,
                              parallel::ThreadPool* pool) const override;

 private:
  formats::Format format() const noexcept { return source_.encoding.element; }
  /// One matrix of a tensor, the window of it, and where its parts go.
  struct Job {
    const QuantisedMatrix& half;
    std::array<Range, 2> rows;  // padded
    Range k;
    bool wants_codes = false;
    bool wants_scales = false;
    bool keeps_scales = false;  // of the whole matrix; else those of the window lie there for now
    float amax = 0.0F;
    bool scales_are_known = false;
    std::span<std::byte> codes{};
    std::span<std::byte> scales{};

    bool is_part_of_rows() const noexcept { return k != Range{0, half.k}; }
  };
  Job job_of(std::size_t tensor_idx, bool down, const SourceWindow& window) const noexcept;
  std::uint64_t codes_bytes(const Job& job) const noexcept;
  std::uint64_t window_scales_bytes(const Job& job) const noexcept;
  std::uint64_t scales_bytes(const Job& job) const noexcept;
  std::uint64_t deal_out(Job& job, std::span<std::byte> memory) const noexcept;
  bool quantise(const Job& job, const layout::MatrixRows& source, parallel::ThreadPool* pool) const;
  layout::MatrixRows codes_of(const Job& job) const noexcept;
  layout::MatrixRows scales_of(const Job& job) const noexcept;
  Result<std::uint64_t> run(Job& job, const RefineRequest& request, bool down,
                            std::span<std::byte> memory, parallel::ThreadPool* pool) const;
  bool has_scale_of_row() const noexcept {
    const formats::Encoding& encoding = formats::info(scheme_).encoding;
    return encoding.block_rows == 1 && encoding.block_k == formats::kWhole;
  }

  formats::OnlineScheme scheme_;
  ExpertsShape source_;
  QuantisedMatrix gate_up_;
  QuantisedMatrix down_;
  const Preparer& inner_;
};

}  // namespace lode::targets
