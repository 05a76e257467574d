#include "lode/placement/expert_times.h"

namespace lode::placement {

void ExpertTimes::add(double rows, double experts, double seconds) noexcept {
  if (!(rows > 0) || !(experts > 0) || !(seconds > 0)) return;
  const double scaled_rows = rows / seconds;
  const double scaled_experts = experts / seconds;
  ++samples_;
  rows_rows_ += scaled_rows * scaled_rows;
  rows_experts_ += scaled_rows * scaled_experts;
  experts_experts_ += scaled_experts * scaled_experts;
  rows_ += scaled_rows;
  experts_ += scaled_experts;
}

ExpertTimes& ExpertTimes::operator+=(const ExpertTimes& other) noexcept {
  samples_ += other.samples_;
  rows_rows_ += other.rows_rows_;
  rows_experts_ += other.rows_experts_;
  experts_experts_ += other.experts_experts_;
  rows_ += other.rows_;
  experts_ += other.experts_;
  return *this;
}

ExpertSeconds ExpertTimes::fit() const noexcept {
  if (samples_ == 0) return {};
  const ExpertSeconds by_rows{rows_ / rows_rows_, 0};
  const ExpertSeconds by_experts{0, experts_ / experts_experts_};
  // 0 where rows and experts are always in one proportion, but for what rounding leaves of it.
  const double determinant = rows_rows_ * experts_experts_ - rows_experts_ * rows_experts_;
  if (determinant <= 1e-9 * rows_rows_ * experts_experts_) return by_rows;
  const double a_row = (rows_ * experts_experts_ - experts_ * rows_experts_) / determinant;
  const double an_expert = (experts_ * rows_rows_ - rows_ * rows_experts_) / determinant;
  if (an_expert < 0) return by_rows;
  if (a_row < 0) return by_experts;
  return {a_row, an_expert};
}

}  // namespace lode::placement
