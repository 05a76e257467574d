#include "lode/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

namespace lode::engine {
namespace {

constexpr float kGreedyTemperature = 1e-5F;
constexpr float kLeastTemperature = 0.01F;  // what lies between is raised to it, as in vLLM
constexpr float kGone = -std::numeric_limits<float>::infinity();

Error bad_parameter(std::string name, std::string wanted, float found) {
  return Error{.code = Code::kUsage,
               .thing = std::move(name),
               .wanted = std::move(wanted),
               .found = std::to_string(found)};
}

Error bad_logits(std::string found) {
  return Error{.code = Code::kOther,
               .thing = "logits",
               .wanted = "numbers, at least one of them finite",
               .found = std::move(found)};
}

// Written so that NaN is outside.
bool within(float value, float low, float high) noexcept { return value >= low && value <= high; }

Status check_bias(const SamplingParams& params, std::size_t vocab_size) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || static_cast<std::size_t>(id) >= vocab_size) {
      return Error{.code = Code::kUsage,
                   .thing = "logit_bias",
                   .wanted = "token ids below " + std::to_string(vocab_size),
                   .found = std::to_string(id)};
    }
    if (!within(bias, -100, 100)) return bad_parameter("logit_bias", "in [-100, 100]", bias);
  }
  return {};
}

// The ids of `tokens` that are in the vocabulary, rising.
std::vector<std::int32_t> sorted_ids(std::span<const std::int32_t> tokens, std::size_t vocab_size,
                                     std::vector<std::int32_t> ids = {}) {
  for (const std::int32_t id : tokens) {
    if (id >= 0 && static_cast<std::size_t>(id) < vocab_size) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

void penalise_repetition(std::span<float> logits, float penalty, const TokenHistory& history) {
  if (penalty == 1) return;
  auto ids = sorted_ids(history.output, logits.size(), sorted_ids(history.prompt, logits.size()));
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const std::int32_t id : ids) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

void penalise_presence(std::span<float> logits, const SamplingParams& params,
                       std::span<const std::int32_t> output) {
  if (params.frequency_penalty == 0 && params.presence_penalty == 0) return;
  const auto ids = sorted_ids(output, logits.size());
  for (auto it = ids.begin(); it != ids.end();) {
    const auto next = std::upper_bound(it, ids.end(), *it);
    const auto count = static_cast<float>(next - it);
    logits[static_cast<std::size_t>(*it)] -=
        params.frequency_penalty * count + params.presence_penalty;
    it = next;
  }
}

Status check_logits(std::span<const float> logits) {
  bool any = false;
  for (const float logit : logits) {
    if (std::isnan(logit)) return bad_logits("NaN");
    if (logit == std::numeric_limits<float>::infinity()) return bad_logits("+inf");
    any = any || logit != kGone;
  }
  if (!any) return bad_logits("no token is left");
  return {};
}

// What comes before the choice: biases and penalties.
Status adjust(std::span<float> logits, const SamplingParams& params, const TokenHistory& history) {
  LODE_TRY_STATUS(check_logits(logits));
  for (const auto& [id, bias] : params.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  penalise_repetition(logits, params.repetition_penalty, history);
  penalise_presence(logits, params, history.output);
  return check_logits(logits);  // a tiny penalty can make a logit infinite
}

std::int32_t first_largest(std::span<const float> logits) noexcept {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Larger logits first, of equals the lower id.
auto by_logit(std::span<const float> logits) {
  return [logits](std::int32_t a, std::int32_t b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
}

// Leaves in `order` the tokens that min_p lets through. Logits are at the temperature.
void keep_min_p(std::span<const float> logits, float min_p, std::vector<std::int32_t>& order) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  order.clear();
  order.reserve(logits.size());  // what Sampler promises to keep, and no more
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double share = std::exp(static_cast<double>(logits[i]) - static_cast<double>(largest));
    const bool stays = logits[i] != kGone && (min_p == 0 || share >= static_cast<double>(min_p));
    if (stays) order.push_back(static_cast<std::int32_t>(i));
  }
}

void keep_top_k(std::span<const float> logits, int top_k, std::vector<std::int32_t>& order) {
  if (top_k <= 0 || static_cast<std::size_t>(top_k) >= order.size()) return;
  const auto kth = order.begin() + (top_k - 1);
  std::nth_element(order.begin(), kth, order.end(), by_logit(logits));
  const float least = logits[static_cast<std::size_t>(*kth)];
  std::erase_if(order,
                [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)] < least; });
}

double weight(std::span<const float> logits, std::int32_t id, float largest) noexcept {
  return std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) -
                  static_cast<double>(largest));
}

// Keeps the most probable tokens until their probabilities reach top_p. Only as much of the order
// is sorted as is needed, in steps that grow.
void keep_top_p(std::span<const float> logits, float top_p, std::vector<std::int32_t>& order) {
  if (top_p >= 1 || order.size() < 2) return;
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const std::int32_t id : order) total += weight(logits, id, largest);
  const double wanted = static_cast<double>(top_p) * total;
  double before = 0;
  std::size_t sorted = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && before >= wanted) return order.resize(i);
    if (i == sorted) {
      sorted = std::min(order.size(), std::max<std::size_t>(256, 8 * sorted));
      std::partial_sort(order.begin() + static_cast<std::ptrdiff_t>(i),
                        order.begin() + static_cast<std::ptrdiff_t>(sorted), order.end(),
                        by_logit(logits));
    }
    before += weight(logits, order[i], largest);
  }
}

// The tokens that may be drawn, ids rising, and their weights. Writes over the logits.
void filter(std::span<float> logits, const SamplingParams& params, std::vector<std::int32_t>& order,
            std::vector<float>& weights) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (params.temperature != 1) {
    const float temperature = std::max(params.temperature, kLeastTemperature);
    for (float& logit : logits) logit = std::min(logit / temperature, kMost);
  }
  keep_min_p(logits, params.min_p, order);
  keep_top_k(logits, params.top_k, order);
  keep_top_p(logits, params.top_p, order);
  std::sort(order.begin(), order.end());
  const float largest = *std::max_element(logits.begin(), logits.end());
  weights.clear();
  weights.reserve(logits.size());
  for (const std::int32_t id : order) {
    weights.push_back(static_cast<float>(weight(logits, id, largest)));
  }
}

// A number that looks random for each counter (the mixing step of SplitMix64, Steele et al. 2014).
std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// In [0, 1), from the seed and the number of the draw alone.
double uniform(std::uint64_t seed, std::uint64_t draw) noexcept {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;
  const std::uint64_t bits = mix(mix(seed + kStep) + (draw + 1) * kStep);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

bool is_greedy(const SamplingParams& params) noexcept {
  return params.temperature < kGreedyTemperature || params.top_k == 1;
}

Status check_params(const SamplingParams& params, std::size_t vocab_size) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (!within(params.temperature, 0, kMost)) {
    return bad_parameter("temperature", "0 or more, and finite", params.temperature);
  }
  if (!within(params.top_p, std::numeric_limits<float>::min(), 1)) {
    return bad_parameter("top_p", "in (0, 1]", params.top_p);
  }
  if (params.top_k < -1) {
    return bad_parameter("top_k", "-1, 0 or more", static_cast<float>(params.top_k));
  }
  if (!within(params.min_p, 0, 1)) return bad_parameter("min_p", "in [0, 1]", params.min_p);
  if (!within(params.repetition_penalty, std::numeric_limits<float>::min(), kMost)) {
    return bad_parameter("repetition_penalty", "above 0, and finite", params.repetition_penalty);
  }
  if (!within(params.frequency_penalty, -2, 2)) {
    return bad_parameter("frequency_penalty", "in [-2, 2]", params.frequency_penalty);
  }
  if (!within(params.presence_penalty, -2, 2)) {
    return bad_parameter("presence_penalty", "in [-2, 2]", params.presence_penalty);
  }
  return check_bias(params, vocab_size);
}

Result<std::vector<float>> filtered_probabilities(std::span<const float> logits,
                                                  const SamplingParams& params,
                                                  const TokenHistory& history) {
  LODE_TRY_STATUS(check_params(params, logits.size()));
  std::vector<float> work(logits.begin(), logits.end());
  LODE_TRY_STATUS(adjust(work, params, history));
  std::vector<float> probabilities(logits.size(), 0);
  if (params.temperature < kGreedyTemperature) {
    probabilities[static_cast<std::size_t>(first_largest(work))] = 1;
    return probabilities;
  }
  std::vector<std::int32_t> order;
  std::vector<float> weights;
  filter(work, params, order, weights);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    probabilities[static_cast<std::size_t>(order[i])] =
        static_cast<float>(static_cast<double>(weights[i]) / total);
  }
  return probabilities;
}

Result<Sampler> Sampler::make(SamplingParams params, std::size_t vocab_size) {
  LODE_TRY_STATUS(check_params(params, vocab_size));
  return Sampler(std::move(params), vocab_size);
}

Result<std::int32_t> Sampler::sample(std::span<float> logits, const TokenHistory& history) {
  if (logits.size() != vocab_size_) {
    return Error{.code = Code::kUsage,
                 .thing = "logits",
                 .wanted = std::to_string(vocab_size_) + " numbers",
                 .found = std::to_string(logits.size())};
  }
  LODE_TRY_STATUS(adjust(logits, params_, history));
  const double share = uniform(params_.seed, num_draws_++);
  if (is_greedy(params_)) return first_largest(logits);
  filter(logits, params_, order_, weights_);
  const double target = share * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double reached = 0;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    reached += static_cast<double>(weights_[i]);
    if (reached > target) return order_[i];
  }
  return order_.back();  // rounding kept the sum below the target
}

}  // namespace lode::engine
