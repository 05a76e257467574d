#pragma once

#include <cstdint>

namespace lode::placement {

/// What a row costs and what an expert in use costs, in seconds.
struct ExpertSeconds {
  double a_row = 0;
  double an_expert = 0;
};

/// Times of experts as they were measured, from which both costs are told apart: small passes have
/// about as many experts as rows, large ones many rows an expert. It keeps sums, not samples.
class ExpertTimes {
 public:
  /// One layer of one pass on one rank: so many rows through so many experts took so long. Nothing
  /// is noted where one of them is none.
  void add(double rows, double experts, double seconds) noexcept;
  ExpertTimes& operator+=(const ExpertTimes& other) noexcept;

  std::uint64_t samples() const noexcept { return samples_; }

  /// The costs that miss the samples least, relative to what each took (least squares), neither of
  /// them below 0. Where rows and experts were always alike, rows have all the cost.
  ExpertSeconds fit() const noexcept;

 private:
  std::uint64_t samples_ = 0;
  // Sums of products, of samples that are divided by their time.
  double rows_rows_ = 0, rows_experts_ = 0, experts_experts_ = 0, rows_ = 0, experts_ = 0;
};

}  // namespace lode::placement
