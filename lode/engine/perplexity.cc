#include "lode/engine/perplexity.h"

#include <algorithm>
#include <cmath>

#include "lode/base/fmt.h"

namespace lode::engine {
namespace {

Error wrong(std::string_view thing, std::string wanted, std::uint64_t found) {
  return Error{.code = Code::kUsage,
               .thing = std::string(thing),
               .wanted = std::move(wanted),
               .found = fmt::format("{}", found)};
}

Status check_vocabulary(std::span<const std::int32_t> ids, std::uint64_t vocab) {
  for (const std::int32_t id : ids) {
    if (id >= 0 && static_cast<std::uint64_t>(id) < vocab) continue;
    return Error{.code = Code::kUsage,
                 .thing = "token of the text",
                 .wanted = fmt::format("an id below {}, the model's vocabulary", vocab),
                 .found = fmt::format("{}", id)};
  }
  return {};
}

// -log softmax(logits)[id], in double.
Result<double> nll(std::span<const float> logits, std::int32_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double value =
      largest + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(id)]);
  if (std::isfinite(value)) return value;
  return Error{
      .code = Code::kOther, .thing = "logits", .wanted = "finite numbers", .found = "others"};
}

// Sum over the positions of one window from `first_scored` on.
Result<double> score_window(model::Model& model, model::KvCache& cache,
                            std::span<const std::int32_t> ids, std::uint32_t first_scored,
                            std::span<float> logits) {
  const std::size_t vocab = model.spec().vocab;
  const std::size_t rows = logits.size() / vocab;
  const std::size_t window = ids.size() - 1;
  cache.clear();
  double sum = 0;
  for (std::size_t begin = 0; begin < window; begin += rows) {
    const std::size_t count = std::min(rows, window - begin);
    LODE_TRY_STATUS(model.forward(ids.subspan(begin, count), cache, model::Logits::kAll,
                                  logits.first(count * vocab)));
    for (std::size_t i = 0; i < count; ++i) {
      if (begin + i < first_scored) continue;
      LODE_TRY(const double one, nll(logits.subspan(i * vocab, vocab), ids[begin + i + 1]));
      sum += one;
    }
  }
  return sum;
}

}  // namespace

Status check_windows(const PerplexityShape& shape, std::uint64_t cache_tokens,
                     std::size_t num_ids) {
  if (shape.window_tokens == 0 || shape.window_tokens > cache_tokens) {
    return wrong("--ctx", fmt::format("1 to {} tokens a window", cache_tokens),
                 shape.window_tokens);
  }
  if (shape.stride_tokens == 0 || shape.stride_tokens > shape.window_tokens) {
    return wrong("--stride", fmt::format("1 to {} tokens", shape.window_tokens),
                 shape.stride_tokens);
  }
  if (num_ids <= shape.window_tokens) {
    return wrong("text", fmt::format("more than {} tokens, one window", shape.window_tokens),
                 num_ids);
  }
  return {};
}

Result<Perplexity> measure_perplexity(
    model::Model& model, model::KvCache& cache, std::span<const std::int32_t> ids,
    const PerplexityShape& shape, std::span<float> logits,
    const std::function<bool(std::uint64_t, std::uint64_t)>& tick) {
  LODE_TRY_STATUS(check_windows(shape, cache.shape().max_tokens, ids.size()));
  LODE_TRY_STATUS(check_vocabulary(ids, model.spec().vocab));
  LODE_CHECK(logits.size() >= model.spec().vocab, "no room for one row of logits");
  const std::uint64_t num_windows =
      (ids.size() - 1 - shape.window_tokens) / shape.stride_tokens + 1;
  Perplexity result;
  double sum = 0;
  for (std::uint64_t window = 0; window < num_windows; ++window) {
    const auto piece = ids.subspan(window * shape.stride_tokens, shape.window_tokens + 1);
    const std::uint32_t first = window == 0 ? 0 : shape.window_tokens - shape.stride_tokens;
    LODE_TRY(const double one, score_window(model, cache, piece, first, logits));
    sum += one;
    result.scored_tokens += shape.window_tokens - first;
    if (tick && !tick(window + 1, num_windows)) {
      return Error{.code = Code::kInterrupted, .thing = "perplexity", .found = "interrupted"};
    }
  }
  result.mean_nll = sum / static_cast<double>(result.scored_tokens);
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

}  // namespace lode::engine
