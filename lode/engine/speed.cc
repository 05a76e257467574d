#include "lode/engine/speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/memory/buffer.h"

namespace lode::engine {
namespace {

using Clock = std::chrono::steady_clock;
using families::Role;

constexpr int kBandwidthPasses = 6;
constexpr std::uint64_t kPieceBytes = kMiB;  // what one task of the pool reads

std::uint64_t us_since(Clock::time_point begin) {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(passed.count()), 1);
}

// Ids that look like no text: every run gets the same, and of a whole vocabulary the experts are
// chosen evenly.
std::vector<std::int32_t> random_ids(const SpeedTest& test, std::uint64_t vocab) {
  std::vector<std::int32_t> ids(test.tokens);
  if (test.distinct_ids != 0) vocab = std::min(vocab, test.distinct_ids);
  std::uint64_t state = 0x9E3779B97F4A7C15ULL;
  for (std::int32_t& id : ids) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    id = static_cast<std::int32_t>((state >> 33) % vocab);
  }
  return ids;
}

Status check(const Engine& engine, std::uint64_t most, std::uint32_t tokens,
             std::uint32_t repeats) {
  if (tokens > 0 && tokens <= most && repeats > 0) return {};
  return Error{.code = Code::kUsage,
               .thing = "measurement of " + engine.source().folder.filename().string(),
               .wanted = fmt::format("1 to {} tokens, the context, and a repetition", most),
               .found = fmt::format("{} tokens, {} repetitions", tokens, repeats)};
}

Status check_finite(std::span<const float> logits) {
  const bool finite =
      std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
  if (finite) return {};
  return Error{.code = Code::kOther,
               .thing = "logits",
               .wanted = "finite numbers",
               .found = "others",
               .hint = "a speed without an answer is worth nothing"};
}

// Takes all ids in, `step` at a time, and looks at what comes out.
Result<std::uint64_t> time_once(Engine& engine, std::span<const std::int32_t> ids,
                                std::size_t step) {
  const std::span<float> row = engine.logits().first(engine.source().spec.vocab);
  engine.cache().clear();
  const Clock::time_point begin = Clock::now();
  for (std::size_t first = 0; first < ids.size(); first += step) {
    LODE_TRY_STATUS(engine.forward(ids.subspan(first, step), model::Logits::kLast, row));
  }
  const std::uint64_t time_us = us_since(begin);
  LODE_TRY_STATUS(check_finite(row));
  return time_us;
}

Result<Speed> measure(Engine& engine, std::span<const std::int32_t> ids, std::size_t step,
                      std::uint32_t repeats, const GoOn& go_on) {
  Speed speed{.tokens = ids.size(), .times_us = {}};
  for (std::uint32_t i = 0; i <= repeats; ++i) {
    if (go_on && !go_on()) {
      return Error{.code = Code::kInterrupted, .thing = "measurement", .found = "interrupted"};
    }
    LODE_TRY(const std::uint64_t time_us, time_once(engine, ids, step));
    if (i > 0) speed.times_us.push_back(time_us);  // the first one warms up
  }
  return speed;
}

// Sums the words of a piece: eight sums, so that no add waits for the one before.
std::uint64_t sum_words(std::span<const std::byte> piece) {
  std::array<std::uint64_t, 8> sums{};
  std::array<std::uint64_t, 8> words{};
  for (std::size_t at = 0; at + sizeof words <= piece.size(); at += sizeof words) {
    std::memcpy(words.data(), piece.data() + at, sizeof words);
    for (std::size_t i = 0; i < words.size(); ++i) sums[i] += words[i];
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

}  // namespace

double Speed::tokens_per_second() const {
  const auto time_us = std::accumulate(times_us.begin(), times_us.end(), std::uint64_t{0});
  return static_cast<double>(tokens * times_us.size()) * 1e6 /
         static_cast<double>(std::max<std::uint64_t>(time_us, 1));
}

double Speed::best_tokens_per_second() const {
  if (times_us.empty()) return 0;
  return static_cast<double>(tokens) * 1e6 /
         static_cast<double>(*std::min_element(times_us.begin(), times_us.end()));
}

Result<Speed> measure_prompt(Engine& engine, const SpeedTest& test, const GoOn& go_on) {
  LODE_TRY_STATUS(check(engine, engine.cache().shape().max_tokens, test.tokens, test.repeats));
  const std::vector<std::int32_t> ids = random_ids(test, engine.source().spec.vocab);
  return measure(engine, ids, ids.size(), test.repeats, go_on);
}

Result<Speed> measure_decode(Engine& engine, const SpeedTest& test, const GoOn& go_on) {
  LODE_TRY_STATUS(check(engine, engine.cache().shape().max_tokens, test.tokens, test.repeats));
  const std::vector<std::int32_t> ids = random_ids(test, engine.source().spec.vocab);
  return measure(engine, ids, 1, test.repeats, go_on);
}

std::uint64_t decode_read_bytes(const loader::LoadPlan& plan, const families::ModelSpec& spec) {
  std::uint64_t bytes = 0;
  std::uint64_t embedding_bytes = 0;
  bool has_head = false;
  for (const loader::StagePlan& stage : plan.stages) {
    for (const loader::TensorPlace& place : stage.places) {
      has_head = has_head || place.role == Role::kOutputHead;
      (place.role == Role::kTokenEmbedding ? embedding_bytes : bytes) += place.bytes;
    }
    if (stage.bank) bytes += spec.router.top_k * stage.bank->record.record_bytes;
  }
  return has_head ? bytes : bytes + embedding_bytes;  // tied: the embedding is the head
}

Result<double> measure_read_bandwidth(parallel::ThreadPool& pool, memory::Ledger& ledger,
                                      std::uint64_t bytes) {
  const std::uint64_t pieces = bytes / kPieceBytes;
  if (pieces == 0) {
    return Error{.code = Code::kUsage,
                 .thing = "block to read",
                 .wanted = "1 MiB or more",
                 .found = fmt::format("{} bytes", bytes)};
  }
  LODE_TRY(memory::Buffer block, memory::make_buffer(ledger, memory::Tag::kScratch,
                                                     pieces * kPieceBytes, "block to read"));
  const std::span<std::byte> all = block.mutate();
  std::vector<std::uint64_t> sums(pieces);
  // Written first: pages that were never written are all the same one.
  pool.run(pieces, [&](std::size_t piece, std::size_t) {
    std::ranges::fill(all.subspan(piece * kPieceBytes, kPieceBytes), std::byte{1});
  });
  std::uint64_t best_us = ~std::uint64_t{0};
  for (int pass = 0; pass < kBandwidthPasses; ++pass) {
    const Clock::time_point begin = Clock::now();
    pool.run(pieces, [&](std::size_t piece, std::size_t) {
      sums[piece] += sum_words(all.subspan(piece * kPieceBytes, kPieceBytes));
    });
    best_us = std::min(best_us, us_since(begin));
  }
  const std::uint64_t word = 0x0101010101010101ULL * (kPieceBytes / 8) * kBandwidthPasses;
  for (const std::uint64_t sum : sums) LODE_CHECK(sum == word, "a read that saw other bytes");
  return static_cast<double>(pieces * kPieceBytes) * 1e6 / static_cast<double>(best_us);
}

}  // namespace lode::engine
