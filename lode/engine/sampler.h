#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lode/base/result.h"

namespace lode::engine {

/// How the next token is chosen. Every default is neutral. The steps, in this order: logit_bias,
/// repetition_penalty, frequency and presence penalty, temperature, min_p, top_k, top_p, softmax.
struct SamplingParams {
  // Below 1e-5: greedy, the largest logit, of equals the lowest id. From there up to 0.01: 0.01.
  float temperature = 1;
  int top_k = 0;                 // 0 or -1: off. Tokens that equal the k-th stay too
  float top_p = 1;               // in (0, 1]; of equals at the border the lower ids stay
  float min_p = 0;               // in [0, 1], of the largest probability
  float repetition_penalty = 1;  // above 0; over prompt and output: positive logits / p, others * p
  float presence_penalty = 0;    // in [-2, 2]; over the output, once a token
  float frequency_penalty = 0;   // in [-2, 2]; over the output, times its count
  std::uint64_t seed = 0;
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};  // each in [-100, 100]
};

/// The tokens so far. Ids outside the vocabulary are passed over.
struct TokenHistory {
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> output;
};

/// Errors: kUsage naming the parameter, the range it must be in and what it is.
Status check_params(const SamplingParams& params, std::size_t vocab_size);

/// True where the parameters leave nothing to chance: a temperature of 0, or top_k = 1, which then
/// means the same token.
bool is_greedy(const SamplingParams& params) noexcept;

/// The probabilities after all steps: 0 for what the filters took away. A temperature of 0 gives 1
/// to one token; top_k = 1 gives the largest logits equal shares (Sampler takes the lowest id).
/// Errors: kUsage as check_params; kOther if a logit is NaN or +inf, or no token is left.
Result<std::vector<float>> filtered_probabilities(std::span<const float> logits,
                                                  const SamplingParams& params,
                                                  const TokenHistory& history);

/// What a Sampler keeps for each token of the vocabulary, at most: for the ledger beforehand.
inline constexpr std::uint64_t kSamplerBytesPerToken = 8;

/// Draws tokens for one sequence. The n-th draw depends on the seed, n and the logits alone, not on
/// what else the machine does or which sequences run beside it.
class Sampler {
 public:
  /// Errors: kUsage as check_params.
  static Result<Sampler> make(SamplingParams params, std::size_t vocab_size);

  /// The next token. Writes over `logits`, one per token of the vocabulary.
  /// Memory: keeps 8 bytes per token of the vocabulary from the first draw that is not greedy on;
  /// with penalties, 4 bytes per token of the history while it works.
  /// Errors: kOther if a logit is NaN or +inf, or no token is left; kUsage for a wrong length.
  Result<std::int32_t> sample(std::span<float> logits, const TokenHistory& history);

  const SamplingParams& params() const noexcept { return params_; }

 private:
  Sampler(SamplingParams params, std::size_t vocab_size)
      : params_(std::move(params)), vocab_size_(vocab_size) {}

  SamplingParams params_;
  std::size_t vocab_size_;
  std::uint64_t num_draws_ = 0;
  std::vector<std::int32_t> order_;  // scratch: the tokens that are left
  std::vector<float> weights_;       // scratch: their weights
};

}  // namespace lode::engine
