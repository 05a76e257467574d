#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/engine/balancer.h"
#include "lode/engine/sampler.h"
#include "lode/model/model.h"
#include "lode/text/tokenizer.h"

namespace lode::engine {

/// One text to continue.
struct Request {
  std::vector<std::int32_t> prompt_ids;
  std::uint32_t max_new_tokens = 256;
  SamplingParams sampling{};
  std::vector<std::string> stops{};     // strings that end the text; they are not part of it
  std::vector<std::int64_t> end_ids{};  // tokens that end the text
};

enum class Finish : std::uint8_t {
  kLength,   // max_new_tokens
  kContext,  // the cache is full
  kEnd,      // a token of end_ids
  kStop,     // a stop string
  kCancelled,
};
std::string_view name(Finish finish) noexcept;

struct Generation {
  std::vector<std::int32_t> ids;  // what was drawn, the end token included
  std::string text;
  Finish finish = Finish::kLength;
  std::uint64_t prompt_us = 0;  // until the logits of the prompt's last token
  std::uint64_t decode_us = 0;  // for the rest
};

/// What a generation works with; all outlive it. `logits` has room for one row of the vocabulary.
struct Workplace {
  model::Model* model = nullptr;
  model::KvCache* cache = nullptr;
  const text::Tokenizer* tokenizer = nullptr;
  std::span<float> logits;
  comm::Group* group = nullptr;  // of more ranks than one: they end together
  Balancer* balancer = nullptr;  // moves experts between passes
  model::Observer* observer = nullptr;
};

/// The model over the next tokens of the cache, and what balancing does after each pass, which is a
/// chunk of them.
///
/// Shapes: logits as model::Model::forward has them.
/// Errors: those of model::Model::forward and of Balancer::after_pass.
Status forward(const Workplace& place, std::span<const std::int32_t> tokens, model::Logits wanted,
               std::span<float> logits);

/// Whether `ids` can be a prompt where the cache has room for `free_tokens`.
/// Errors: kUsage for none, too many, or a token beyond the vocabulary.
Status check_prompt(std::span<const std::int32_t> ids, std::uint64_t free_tokens,
                    std::uint64_t vocab);

/// Gets each piece of text as soon as its characters are whole; returns false to cancel.
using OnText = std::function<bool(std::string_view)>;

/// Continues the text of `request` in a cache that is empty or holds what came before it.
///
/// Errors: kUsage for an empty prompt, one that the cache cannot hold, a token beyond the
/// vocabulary or a sampling parameter out of its range; kOther where the logits are not finite;
/// those of comm::Group.
Result<Generation> generate(const Workplace& place, const Request& request, const OnText& on_text);

}  // namespace lode::engine
