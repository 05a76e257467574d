#include "lode/moe/score.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lode::moe {
namespace {

using families::Score;

/// 1/13!, 1/12!, ..., 1/2!, 1, 1.
constexpr std::array<double, 14> kSeries = [] {
  std::array<double, 14> out{};
  double factorial = 1.0;
  for (std::size_t n = 0; n < out.size(); ++n) {
    factorial *= n == 0 ? 1.0 : static_cast<double>(n);
    out[out.size() - 1 - n] = 1.0 / factorial;
  }
  return out;
}();

double power_of_two(std::int64_t exponent) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52U);
}

double sigmoid(double x) noexcept {
  const double small = exp_f64(-std::abs(x));
  return x < 0.0 ? small / (1.0 + small) : 1.0 / (1.0 + small);
}

double sqrt_softplus(double x) noexcept {
  return std::sqrt(std::max(x, 0.0) + std::log1p(exp_f64(-std::abs(x))));
}

double largest_finite(std::span<const float> logits) noexcept {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) {
    if (std::isfinite(logit)) largest = std::max(largest, double{logit});
  }
  return largest;
}

double score_of(Score score, double logit, double largest) noexcept {
  if (score == Score::kSigmoid) return sigmoid(logit);
  if (score == Score::kSqrtSoftplus) return sqrt_softplus(logit);
  return exp_f64(logit - largest);
}

}  // namespace

double exp_f64(double x) noexcept {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // few bits, so that n * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
  constexpr double kLowest = -745.2;             // e^-745.2 is 0
  const double inside = std::max(x, kLowest);
  const double n = (inside * kLog2E + kRound) - kRound;
  const double r = (inside - n * kLn2High) - n * kLn2Low;
  // |r| <= ln(2)/2: what follows r^13/13! is below 5e-18.
  double series = 0.0;
  for (const double factor : kSeries) series = series * r + factor;
  // 2^n in two factors, for n goes down to -1075.
  const auto whole = static_cast<std::int64_t>(n);
  const std::int64_t half = whole / 2;
  return series * power_of_two(half) * power_of_two(whole - half);
}

void score_logits(Score score, std::span<const float> logits, Doubles scores) noexcept {
  const double largest = largest_finite(logits);
  double sum = 0.0;
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    const double logit = double{logits[expert]};
    const double value = std::isfinite(logit) ? score_of(score, logit, largest) : 0.0;
    scores.set(expert, value);
    sum += value;
  }
  if (score != Score::kSoftmax || !(sum > 0.0)) return;
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    scores.set(expert, scores[expert] / sum);
  }
}

}  // namespace lode::moe
