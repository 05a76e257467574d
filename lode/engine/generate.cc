#include "lode/engine/generate.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "lode/base/fmt.h"
#include "lode/engine/ranks.h"
#include "lode/text/stop_matcher.h"
#include "lode/text/stream_decoder.h"

namespace lode::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 5> kFinishNames = {"length", "context", "end", "stop",
                                                          "cancelled"};

std::uint64_t us_since(Clock::time_point begin) {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  return static_cast<std::uint64_t>(passed.count());
}

// Turns tokens into text for the listener, holding back what may still become a stop string.
class TextOut {
 public:
  TextOut(const Workplace& place, const Request& request, const OnText& on_text)
      : decoder_(*place.tokenizer, true), stops_(request.stops), on_text_(on_text) {}

  void push(std::int32_t id) { send(stops_.push(decoder_.push(id))); }
  void flush() {
    send(stops_.push(decoder_.flush()));
    send(stops_.flush());
  }
  bool stopped() const noexcept { return stops_.stopped(); }
  bool cancelled() const noexcept { return cancelled_; }
  std::string take() { return std::move(text_); }

 private:
  void send(std::string_view piece) {
    if (piece.empty() || cancelled_) return;
    text_ += piece;
    if (on_text_ && !on_text_(piece)) cancelled_ = true;
  }

  text::StreamDecoder decoder_;
  text::StopMatcher stops_;
  const OnText& on_text_;
  std::string text_;
  bool cancelled_ = false;
};

bool ends(const Request& request, std::int32_t id) {
  return std::find(request.end_ids.begin(), request.end_ids.end(), id) != request.end_ids.end();
}

// Whether the text is over after its newest token, and why.
std::optional<Finish> finished(const Workplace& place, const Request& request, const TextOut& text,
                               const Generation& result) {
  if (ends(request, result.ids.back())) return Finish::kEnd;
  if (text.stopped()) return Finish::kStop;
  if (text.cancelled()) return Finish::kCancelled;
  if (result.ids.size() >= request.max_new_tokens) return Finish::kLength;
  if (place.cache->free_tokens() == 0) return Finish::kContext;
  return std::nullopt;
}

// All ranks draw the same tokens, so they end alike, but that each may be told to stop by itself.
Result<std::optional<Finish>> agreed(const Workplace& place, std::optional<Finish> own) {
  if (place.group == nullptr) return own;
  LODE_TRY(const bool any, any_rank(*place.group, own == Finish::kCancelled));
  return any ? Finish::kCancelled : own;
}

// A chunk of a call's tokens, its share of the logits, and what balancing does after it.
Status run_chunk(const Workplace& place, std::span<const std::int32_t> chunk, bool is_last,
                 model::Logits wanted, std::span<float> logits) {
  const Clock::time_point begin = Clock::now();
  const bool none = wanted == model::Logits::kLast && !is_last;
  LODE_TRY_STATUS(place.model->forward(chunk, *place.cache, none ? model::Logits::kNone : wanted,
                                       none ? std::span<float>{} : logits, place.observer));
  return place.balancer->after_pass(Clock::now() - begin);
}

}  // namespace

Status forward(const Workplace& place, std::span<const std::int32_t> tokens, model::Logits wanted,
               std::span<float> logits) {
  if (place.balancer == nullptr)
    return place.model->forward(tokens, *place.cache, wanted, logits, place.observer);
  const std::size_t most = place.model->options().chunk_tokens;
  for (std::size_t first = 0; first < tokens.size(); first += most) {
    const std::size_t count = std::min(most, tokens.size() - first);
    const std::size_t vocab = place.model->spec().vocab;
    const bool all = wanted == model::Logits::kAll;
    LODE_TRY_STATUS(run_chunk(place, tokens.subspan(first, count), first + count == tokens.size(),
                              wanted, all ? logits.subspan(first * vocab, count * vocab) : logits));
  }
  return {};
}

Status check_prompt(std::span<const std::int32_t> ids, std::uint64_t free_tokens,
                    std::uint64_t vocab) {
  if (ids.empty()) {
    return Error{.code = Code::kUsage,
                 .thing = "prompt",
                 .wanted = "at least one token",
                 .found = "no text"};
  }
  if (ids.size() > free_tokens) {
    return Error{.code = Code::kUsage,
                 .thing = "prompt",
                 .wanted = fmt::format("at most {} tokens, the context that is left", free_tokens),
                 .found = fmt::format("{}", ids.size()),
                 .hint = "--ctx makes the context longer"};
  }
  const auto beyond = std::find_if(ids.begin(), ids.end(), [vocab](std::int32_t id) {
    return id < 0 || static_cast<std::uint64_t>(id) >= vocab;
  });
  if (beyond == ids.end()) return {};
  return Error{.code = Code::kUsage,
               .thing = fmt::format("token at place {}", beyond - ids.begin()),
               .wanted = fmt::format("an id below {}, the model's vocabulary", vocab),
               .found = fmt::format("{}", *beyond)};
}

std::string_view name(Finish finish) noexcept {
  return kFinishNames[static_cast<std::size_t>(finish)];
}

Result<Generation> generate(const Workplace& place, const Request& request, const OnText& on_text) {
  LODE_TRY_STATUS(
      check_prompt(request.prompt_ids, place.cache->free_tokens(), place.model->spec().vocab));
  LODE_TRY(Sampler sampler, Sampler::make(request.sampling, place.model->spec().vocab));
  Generation result;
  const Clock::time_point begin = Clock::now();
  LODE_TRY_STATUS(forward(place, request.prompt_ids, model::Logits::kLast, place.logits));
  result.prompt_us = us_since(begin);
  if (request.max_new_tokens == 0) return result;

  TextOut text(place, request, on_text);
  const Clock::time_point decode_begin = Clock::now();
  while (true) {
    const TokenHistory history{request.prompt_ids, result.ids};
    LODE_TRY(const std::int32_t id, sampler.sample(place.logits, history));
    result.ids.push_back(id);
    if (!ends(request, id)) text.push(id);
    LODE_TRY(const auto finish, agreed(place, finished(place, request, text, result)));
    if (finish) {
      result.finish = *finish;
      break;
    }
    LODE_TRY_STATUS(forward(place, std::span(&id, 1), model::Logits::kLast, place.logits));
  }
  text.flush();
  result.text = text.take();
  result.decode_us = us_since(decode_begin);
  return result;
}

}  // namespace lode::engine
