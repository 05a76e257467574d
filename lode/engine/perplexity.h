#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "lode/base/result.h"
#include "lode/model/model.h"

namespace lode::engine {

/// How a text is cut: windows of `window_tokens`, each from an empty cache, beginning every
/// `stride_tokens`. A window scores the tokens that no window before it has scored; with the stride
/// equal to the window every token sees what is in its own window alone. Only whole windows count.
struct PerplexityShape {
  std::uint32_t window_tokens = 256;
  std::uint32_t stride_tokens = 256;
};

struct Perplexity {
  std::uint64_t scored_tokens = 0;
  double mean_nll = 0;    // natural logarithm
  double perplexity = 0;  // exp of it
};

/// Whether a text of `num_ids` tokens can be cut so, where a cache holds `cache_tokens`.
/// Errors: kUsage for a window of 0 or beyond the cache, a stride of 0 or above the window, or a
///         text shorter than a window and a token.
Status check_windows(const PerplexityShape& shape, std::uint64_t cache_tokens, std::size_t num_ids);

/// Scores `ids`: the token after each position of a window, by the logits there.
///
/// Errors: those of check_windows; kUsage for a token beyond the vocabulary; kOther where logits
/// are not finite; kInterrupted where `tick` says no. Memory: logits of `rows` positions, given by
/// the caller: [rows][vocab] floats.
Result<Perplexity> measure_perplexity(
    model::Model& model, model::KvCache& cache, std::span<const std::int32_t> ids,
    const PerplexityShape& shape, std::span<float> logits,
    const std::function<bool(std::uint64_t, std::uint64_t)>& tick);

}  // namespace lode::engine
