// Bytes a second of encoding and decoding a megabyte of mixed text with Qwen's pattern and NFC. The
// vocabulary is made here, all bytes and the pairs of ASCII letters: real ones merge more.
#include <benchmark/benchmark.h>

#include <string>

#include "lode/json/json.h"
#include "lode/text/byte_alphabet.h"
#include "lode/text/tokenizer.h"
#include "lode/text/word_pattern.h"

namespace lode::text {
namespace {

json::Value model() {
  json::Object vocab;
  json::Array merges;
  std::int64_t id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    vocab.emplace_back(spell(std::string(1, static_cast<char>(byte))), id++);
  }
  for (char left = 'a'; left <= 'z'; ++left) {
    for (char right = 'a'; right <= 'z'; ++right) {
      vocab.emplace_back(std::string{left, right}, id++);
      merges.emplace_back(std::string{left, ' ', right});
    }
  }
  return json::object({{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}});
}

std::string tokenizer_json() {
  const std::string_view regex = word_patterns()[1].regex;
  const json::Value split = json::object(
      {{"type", "Split"}, {"pattern", json::object({{"Regex", regex}})}, {"behavior", "Isolated"}});
  const json::Value bytes =
      json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return json::dump(json::object(
      {{"normalizer", json::object({{"type", "NFC"}})},
       {"pre_tokenizer",
        json::object({{"type", "Sequence"}, {"pretokenizers", json::Array{split, bytes}}})},
       {"decoder", json::object({{"type", "ByteLevel"}})},
       {"model", model()}}));
}

std::string sample_text(std::size_t bytes) {
  std::string text;
  for (int line = 0; text.size() < bytes; ++line) {
    text += "Line " + std::to_string(line * 7919 % 10'007) +
            ": it's the caf\u00e9 where we'd met; \u4f60\u597d, x = (a + b) / 2;\n";
  }
  return text;
}

const Tokenizer* tokenizer(benchmark::State& state) {
  static const auto made = Tokenizer::from_json(tokenizer_json());
  if (made) return &*made;
  state.SkipWithError(to_string(made.error()).c_str());
  return nullptr;
}

void BM_Encode(benchmark::State& state) {
  const Tokenizer* const used = tokenizer(state);
  if (used == nullptr) return;
  const std::string text = sample_text(1 << 20);
  if (used->decode(used->encode(text, {}), false) != text) {
    state.SkipWithError("wrong ids are not timed");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(used->encode(text, {}));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_Encode)->Unit(benchmark::kMillisecond);

void BM_Decode(benchmark::State& state) {
  const Tokenizer* const used = tokenizer(state);
  if (used == nullptr) return;
  const std::string text = sample_text(1 << 20);
  const auto ids = used->encode(text, {});
  for (auto _ : state) benchmark::DoNotOptimize(used->decode(ids, false));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lode::text
